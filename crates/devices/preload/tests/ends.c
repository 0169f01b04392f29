// A process that may end at a fixed point of its program: `ends TRANSPORT POINT SIGNAL`, with rc or xrc, POINT 0 for none.
// Its peer, which may be itself, gets its address from stdout, and tells it that of its own and what to do on stdin.
#include "xrc.h"
#include <signal.h>
#include <sys/resource.h>

static int end_at, with, point;

static void reach(void) {
    if (++point == end_at)
        raise(with);
}

// One side of a connection: the queue pairs that send and receive (RC: the same one), and what the peer sends to.
struct side {
    struct ibv_xrcd *xrcd;
    struct ibv_srq *srq;
    struct ibv_qp *from, *to;
    unsigned srqn;
};

static struct side make_side(int is_xrc) {
    struct side side = {0};
    if (is_xrc) {
        side.xrcd = open_xrcd(-1, O_CREAT);
        CHECK(side.xrcd);
        side.srq = make_srq(side.xrcd, pd, recv_cq, &side.srqn);
        side.from = make_send_qp();
        side.to = make_recv_qp(side.xrcd);
        to_init(side.to);
    } else {
        side.from = side.to = make_qp(IBV_QPT_RC, send_cq, NULL);
    }
    to_init(side.from);
    return side;
}

static void end_side(const struct side *side) {
    CHECK(ibv_destroy_qp(side->from) == 0);
    if (side->xrcd) {
        CHECK(ibv_destroy_qp(side->to) == 0);
        CHECK(ibv_destroy_srq(side->srq) == 0 && ibv_close_xrcd(side->xrcd) == 0);
    }
}

// Where a side is reached.
struct address {
    unsigned from, to, srqn, rkey;
    unsigned long memory;
};

// Carries out one request; returns its status.
static enum ibv_wc_status carry_out(struct ibv_qp *qp, enum ibv_wr_opcode opcode, const struct address *peer) {
    struct ibv_sge sge = {(uintptr_t)buffer, 4096, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.qp_type.xrc.remote_srqn = peer->srqn;
    if (opcode != IBV_WR_SEND)
        wr.wr.rdma.remote_addr = peer->memory, wr.wr.rdma.rkey = peer->rkey;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    reach();
    return next_completion(qp->send_cq).status;
}

// With XRC: posts what the peer's messages need, as it completes.
static void keep_receives(const struct side *side, int *posted) {
    struct ibv_wc wc;
    while (side->srq && ibv_poll_cq(recv_cq, 1, &wc) == 1)
        --*posted;
    for (; side->srq && *posted < 4; ++*posted)
        post_srq(side->srq, 1, 16384, 4096);
}

int main(int argc, char **argv) {
    CHECK(argc == 4 && setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
    end_at = atoi(argv[2]), with = atoi(argv[3]);
    open_first();
    reach();
    send_cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    recv_cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    struct side side = make_side(strcmp(argv[1], "xrc") == 0);
    struct address peer;
    int posted = 0;
    keep_receives(&side, &posted);
    reach();
    printf("%u %u %u %u %lu\n", side.from->qp_num, side.to->qp_num, side.srqn, mr->rkey, (unsigned long)buffer + 8192);
    fflush(stdout);
    char order[16];
    CHECK(scanf("%u %u %u %u %lu", &peer.from, &peer.to, &peer.srqn, &peer.rkey, &peer.memory) == 5);
    reach();
    if (side.xrcd)
        connect_halves(side.from, peer.to, side.to, peer.from);
    else
        connect_qp(side.from, peer.to);
    reach();
    puts("connected");
    fflush(stdout);
    while (scanf("%15s", order) == 1) {
        enum ibv_wc_status status;
        do {
            keep_receives(&side, &posted);
            status = carry_out(side.from, IBV_WR_RDMA_WRITE, &peer);
            if (status == IBV_WC_SUCCESS)
                status = carry_out(side.from, IBV_WR_RDMA_READ, &peer);
            if (status == IBV_WC_SUCCESS && side.srq)
                status = carry_out(side.from, IBV_WR_SEND, &peer);
        } while (status == IBV_WC_SUCCESS && strcmp(order, "exchange") == 0);
        puts(ibv_wc_status_str(status));
        fflush(stdout);
    }
    end_side(&side);
    CHECK(ibv_destroy_cq(send_cq) == 0 && ibv_destroy_cq(recv_cq) == 0);
    close_all();
    return 0;
}
