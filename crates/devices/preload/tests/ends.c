// A process that may end at a fixed point of its program: `ends POINT SIGNAL`, POINT 0 for none. Its peer, which may be
// itself, gets its address from stdout, and tells it that of its own and what to do on stdin.
#include "verbs.h"
#include <signal.h>
#include <sys/resource.h>

static int end_at, with, point;

static void reach(void) {
    if (++point == end_at)
        raise(with);
}

// Carries out one request; returns its status.
static enum ibv_wc_status carry_out(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t to, uint32_t rkey) {
    struct ibv_sge sge = {(uintptr_t)buffer, 4096, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    wr.wr.rdma.remote_addr = to, wr.wr.rdma.rkey = rkey;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    reach();
    return next_completion(qp->send_cq).status;
}

int main(int argc, char **argv) {
    CHECK(argc == 3 && setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
    end_at = atoi(argv[1]), with = atoi(argv[2]);
    open_first();
    reach();
    struct ibv_cq *cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    struct ibv_qp *qp = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(qp);
    reach();
    printf("%u %lu %u\n", qp->qp_num, (unsigned long)buffer + 8192, mr->rkey);
    fflush(stdout);
    unsigned peer, rkey;
    unsigned long to;
    char order[16];
    CHECK(scanf("%u %lu %u", &peer, &to, &rkey) == 3);
    reach();
    connect_qp(qp, peer);
    reach();
    puts("connected");
    fflush(stdout);
    while (scanf("%15s", order) == 1) {
        enum ibv_wc_status status;
        do {
            status = carry_out(qp, IBV_WR_RDMA_WRITE, to, rkey);
            if (status == IBV_WC_SUCCESS)
                status = carry_out(qp, IBV_WR_RDMA_READ, to, rkey);
        } while (status == IBV_WC_SUCCESS && strcmp(order, "exchange") == 0);
        puts(ibv_wc_status_str(status));
        fflush(stdout);
    }
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_destroy_cq(cq) == 0);
    close_all();
    return 0;
}
