// Does what the test knows, and ends as its argument says: exit, term, fork, wait.
#include "verbs.h"
#include <signal.h>
#include <sys/wait.h>

static struct ibv_send_wr request(enum ibv_wr_opcode opcode, struct ibv_sge *sge, unsigned flags) {
    struct ibv_send_wr wr = {.sg_list = sge, .num_sge = 1, .opcode = opcode, .send_flags = flags};
    wr.wr.rdma.remote_addr = (uintptr_t)buffer + 8192;
    wr.wr.rdma.rkey = mr->rkey;
    return wr;
}

static void complete(struct ibv_cq *cq, int count) {
    while (count-- > 0)
        CHECK(next_completion(cq).status == IBV_WC_SUCCESS);
}

static void work(void) {
    open_first();
    struct ibv_cq *cq = ibv_create_cq(context, 20, NULL, NULL, 0);
    struct ibv_qp *a = make_qp(IBV_QPT_RC, cq, NULL), *b = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(a), to_init(b);
    connect_qp(a, b->qp_num), connect_qp(b, a->qp_num);
    post_recv(b, 1, 0, 100), post_recv(b, 2, 100, 100);
    struct ibv_sge small = {(uintptr_t)buffer + 4096, 16, mr->lkey}, page = {(uintptr_t)buffer + 4096, 4096, mr->lkey};
    struct ibv_send_wr second = request(IBV_WR_SEND, &small, IBV_SEND_INLINE | IBV_SEND_SIGNALED), *bad;
    struct ibv_send_wr first = request(IBV_WR_SEND, &small, IBV_SEND_INLINE);
    first.next = &second;
    CHECK(ibv_post_send(a, &first, &bad) == 0);
    complete(cq, 3);
    struct ibv_send_wr write = request(IBV_WR_RDMA_WRITE, &page, IBV_SEND_SIGNALED);
    CHECK(ibv_post_send(a, &write, &bad) == 0);
    complete(cq, 1);
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
    // The second is refused: inline data of 4 KiB.
    second = request(IBV_WR_SEND, &page, IBV_SEND_INLINE | IBV_SEND_SIGNALED);
    first = request(IBV_WR_RDMA_READ, &small, IBV_SEND_SIGNALED);
    first.next = &second;
    CHECK(ibv_post_send(a, &first, &bad) != 0 && bad == &second);
    complete(cq, 1);
    write.wr.rdma.rkey ^= 0x100;
    CHECK(ibv_post_send(a, &write, &bad) == 0);
    CHECK(next_completion(cq).status == IBV_WC_REM_ACCESS_ERR);
}

int main(int argc, char **argv) {
    CHECK(argc == 2);
    work();
    if (strcmp(argv[1], "term") == 0)
        kill(getpid(), SIGTERM);
    if (strcmp(argv[1], "fork") == 0) {
        // A child that opens no device has nothing to report; the other one does.
        for (int opens = 0; opens < 2; opens++) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                if (opens)
                    open_first();
                exit(0);
            }
            int status;
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        }
    }
    while (strcmp(argv[1], "exit") != 0 && strcmp(argv[1], "fork") != 0)
        pause();
    return 0;
}
