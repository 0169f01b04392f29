// Makes the mistakes that only a completion reports.
#include "verbs.h"
#include <sys/mman.h>

static struct ibv_cq *cq;
static struct ibv_qp *near, *far;

static void make_pair(void) {
    near = make_qp(IBV_QPT_RC, cq, NULL);
    far = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(near);
    to_init(far);
    connect_qp(near, far->qp_num);
    connect_qp(far, near->qp_num);
}

static void destroy_pair(void) {
    CHECK(ibv_destroy_qp(near) == 0);
    CHECK(ibv_destroy_qp(far) == 0);
}

// Posts a request over a new pair, and checks the status of its completion.
static void fails(enum ibv_wr_opcode opcode, struct ibv_sge sge, uint32_t rkey, enum ibv_wc_status status) {
    struct ibv_send_wr *bad, wr = {
        .wr_id = 1, .opcode = opcode, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = (uintptr_t)buffer, .rkey = rkey},
    };
    CHECK(ibv_post_send(near, &wr, &bad) == 0);
    for (;;) {
        struct ibv_wc wc = next_completion(cq);
        if (wc.wr_id != 1)
            continue;
        CHECK(wc.status == status);
        break;
    }
    destroy_pair();
    make_pair();
}

// Lists with more SGEs than the queue takes are not read: one may end where the program's memory does.
static void too_many_sges(void) {
    char *pages = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && mprotect(pages + 4096, 4096, PROT_NONE) == 0);
    struct ibv_sge *last = (struct ibv_sge *)(pages + 4096) - 1;
    *last = (struct ibv_sge){(uintptr_t)buffer, 8, mr->lkey};
    struct ibv_send_wr *bad, send = {.opcode = IBV_WR_SEND, .sg_list = last, .num_sge = 100};
    struct ibv_recv_wr *bad_recv, recv = {.sg_list = last, .num_sge = 100};
    REFUSED(ibv_post_send(near, &send, &bad), EINVAL);
    REFUSED(ibv_post_recv(near, &recv, &bad_recv), EINVAL);
    CHECK(munmap(pages, 8192) == 0);
}

int main(void) {
    open_first();
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    make_pair();
    too_many_sges();
    uintptr_t at = (uintptr_t)buffer;
    struct ibv_mr *readable = ibv_reg_mr(pd, buffer, 4096, 0);
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mr *foreign = ibv_reg_mr(other, buffer, 4096, ALL_ACCESS);
    CHECK(readable && other && foreign);

    fails(IBV_WR_RDMA_WRITE, (struct ibv_sge){at, 8, 0}, mr->rkey, IBV_WC_LOC_PROT_ERR);
    fails(IBV_WR_RDMA_WRITE, (struct ibv_sge){at + 4090, 8, readable->lkey}, mr->rkey, IBV_WC_LOC_PROT_ERR);
    fails(IBV_WR_RDMA_READ, (struct ibv_sge){at, 8, readable->lkey}, mr->rkey, IBV_WC_LOC_PROT_ERR);
    fails(IBV_WR_RDMA_WRITE, (struct ibv_sge){at, 8, foreign->lkey}, mr->rkey, IBV_WC_LOC_PROT_ERR);
    fails(IBV_WR_RDMA_WRITE, (struct ibv_sge){at, 8, mr->lkey}, readable->rkey, IBV_WC_REM_ACCESS_ERR);
    post_recv(far, 2, 0, 4);
    fails(IBV_WR_SEND, (struct ibv_sge){at, 8, mr->lkey}, 0, IBV_WC_REM_INV_REQ_ERR);

    // An overrun: two completions for one entry.
    struct ibv_cq *small = ibv_create_cq(context, 1, NULL, NULL, 0);
    struct ibv_cq *usual = cq;
    cq = small;
    destroy_pair();
    make_pair();
    struct ibv_sge sge = {at, 8, mr->lkey};
    struct ibv_send_wr *bad, wr = {
        .opcode = IBV_WR_RDMA_WRITE, .sg_list = &sge, .num_sge = 1, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {.remote_addr = at, .rkey = mr->rkey},
    };
    for (int i = 0; i < 2; i++)
        CHECK(ibv_post_send(near, &wr, &bad) == 0);
    struct ibv_wc wc;
    time_t begin = time(NULL);
    int found;
    while ((found = ibv_poll_cq(small, 0, &wc)) >= 0 && (found = ibv_poll_cq(small, 1, &wc)) == 0)
        CHECK(time(NULL) - begin < 60);
    CHECK(found == -1);
    destroy_pair();
    CHECK(ibv_destroy_cq(small) == 0);

    CHECK(ibv_destroy_cq(usual) == 0);
    CHECK(ibv_dereg_mr(foreign) == 0 && ibv_dereg_mr(readable) == 0 && ibv_dealloc_pd(other) == 0);
    close_all();
    return 0;
}
