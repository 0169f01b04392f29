// Exits without destroying its objects; with an argument, after a child did so.
#include "verbs.h"
#include <sys/wait.h>

int main(int argc, char **argv) {
    open_first();
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 10, NULL, channel, 0);
    struct ibv_qp *qp = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(qp);
    post_recv(qp, 1, 0, 100);
    if (argc == 1)
        return 0;
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(ibv_destroy_qp(qp) == 0);
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    connect_qp(qp, qp->qp_num);
    struct ibv_sge sge = {(uintptr_t)buffer + 1000, 6, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 2, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    wr.send_flags = IBV_SEND_SIGNALED;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    CHECK(next_completion(cq).status == IBV_WC_SUCCESS && next_completion(cq).status == IBV_WC_SUCCESS);
    // Another process finds a free slot next to this one.
    child = fork();
    if (child == 0) {
        open_first();
        exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
