// Null regions and device memory.
#include "verbs.h"

static struct ibv_cq *cq;
static struct ibv_qp *qps[2];

static enum ibv_wc_status request(enum ibv_wr_opcode opcode, struct ibv_sge *sges, int count, uint64_t addr, uint32_t rkey) {
    struct ibv_send_wr wr = {
        .wr_id = 1, .sg_list = sges, .num_sge = count, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED,
        .wr.rdma = {addr, rkey},
    }, *bad;
    CHECK(ibv_post_send(qps[0], &wr, &bad) == 0);
    struct ibv_wc wc = next_completion(cq);
    while (wc.wr_id != 1)
        wc = next_completion(cq);
    return wc.status;
}

static void test_null(void) {
    struct ibv_mr *null = ibv_alloc_null_mr(pd);
    CHECK(null && null->pd == pd && null->lkey != 0);
    REFUSED(ibv_dealloc_pd(pd), EBUSY);
    // It is read as zeros: 'a' and 100 zeros are written.
    struct ibv_sge parts[2] = {{(uintptr_t)buffer, 1, mr->lkey}, {0x1234, 100, null->lkey}};
    memset(buffer, 'a', 8192);
    CHECK(request(IBV_WR_RDMA_WRITE, parts, 2, (uintptr_t)buffer + 4096, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(buffer[4096] == 'a' && buffer[4097] == 0 && buffer[4196] == 0 && buffer[4197] == 'a');
    // What is read to it is discarded, and leaves it zero.
    parts[0] = (struct ibv_sge){0, 6000, null->lkey};
    parts[1] = (struct ibv_sge){(uintptr_t)buffer + 16384, 4, mr->lkey};
    memset(buffer + 6000, 'b', 8);
    CHECK(request(IBV_WR_RDMA_READ, parts, 2, (uintptr_t)buffer, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(memcmp(buffer + 16384, "bbbb", 4) == 0);
    CHECK(request(IBV_WR_RDMA_WRITE, parts, 1, (uintptr_t)buffer, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(buffer[0] == 0 && buffer[5999] == 0 && buffer[6000] == 'b');
    // A receive discards the first part of a message. Another one is of the whole 4 GiB.
    struct ibv_sge receive[2] = {{~0ull, 3000, null->lkey}, {(uintptr_t)buffer + 20480, 3000, mr->lkey}};
    struct ibv_recv_wr wr = {.wr_id = 2, .sg_list = receive, .num_sge = 2}, *bad;
    CHECK(ibv_post_recv(qps[1], &wr, &bad) == 0);
    memset(buffer, 'c', 3000);
    memset(buffer + 3000, 'd', 3000);
    struct ibv_sge whole = {(uintptr_t)buffer, 6000, mr->lkey};
    CHECK(request(IBV_WR_SEND, &whole, 1, 0, 0) == IBV_WC_SUCCESS);
    while (buffer[20480 + 2999] != 'd')
        next_completion(cq);
    CHECK(buffer[20480] == 'd');
    receive[0].length = ~0u;
    wr.num_sge = 1;
    CHECK(ibv_post_recv(qps[1], &wr, &bad) == 0);
    CHECK(request(IBV_WR_SEND, &whole, 1, 0, 0) == IBV_WC_SUCCESS);
    CHECK(ibv_rereg_mr(null, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == IBV_REREG_MR_ERR_CMD);
    unsigned key = null->lkey;
    CHECK(ibv_dereg_mr(null) == 0);
    // Of another domain it cannot be used; nor can peers use it, or anybody after it was deregistered.
    struct ibv_sge gone = {0, 8, key};
    CHECK(request(IBV_WR_RDMA_WRITE, &gone, 1, (uintptr_t)buffer, mr->rkey) == IBV_WC_LOC_PROT_ERR);
}

static void test_device_memory(void) {
    struct ibv_device_attr_ex device;
    CHECK(ibv_query_device_ex(context, NULL, &device) == 0 && device.max_dm_size >= 4096);
    NULLED(ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){.length = device.max_dm_size + 1}), ENOMEM);
    NULLED(ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){.length = 8, .comp_mask = 1}), EINVAL);
    struct ibv_dm *dm = ibv_alloc_dm(context, &(struct ibv_alloc_dm_attr){.length = 1000, .log_align_req = 6});
    CHECK(dm && dm->context == context);
    char text[8] = "abcdefg", found[8];
    CHECK(ibv_memcpy_to_dm(dm, 96, text, 8) == 0 && ibv_memcpy_from_dm(found, dm, 96, 8) == 0);
    CHECK(memcmp(text, found, 8) == 0);
    REFUSED(ibv_memcpy_to_dm(dm, 97, text, 8), EINVAL);
    REFUSED(ibv_memcpy_from_dm(found, dm, 996, 8), EINVAL);
    NULLED(ibv_reg_dm_mr(pd, dm, 0, 1000, ALL_ACCESS), EINVAL);
    NULLED(ibv_reg_dm_mr(pd, dm, 64, 1000, ALL_ACCESS | IBV_ACCESS_ZERO_BASED), EINVAL);
    struct ibv_mr *region = ibv_reg_dm_mr(pd, dm, 64, 512, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
    CHECK(region && region->length == 512);
    REFUSED(ibv_free_dm(dm), EBUSY);
    struct ibv_mr *empty = ibv_reg_dm_mr(pd, dm, 1000, 0, ALL_ACCESS | IBV_ACCESS_ZERO_BASED);
    CHECK(empty && empty->length == 0 && ibv_dereg_mr(empty) == 0);
    // Requests name its bytes by their offset.
    struct ibv_sge local = {(uintptr_t)buffer, 8, mr->lkey}, inside = {32, 8, region->lkey};
    CHECK(request(IBV_WR_RDMA_READ, &local, 1, 32, region->rkey) == IBV_WC_SUCCESS && memcmp(buffer, text, 8) == 0);
    memcpy(buffer, "1234567", 8);
    CHECK(request(IBV_WR_RDMA_WRITE, &local, 1, 40, region->rkey) == IBV_WC_SUCCESS);
    CHECK(ibv_memcpy_from_dm(found, dm, 104, 8) == 0 && memcmp(found, "1234567", 8) == 0);
    CHECK(request(IBV_WR_RDMA_WRITE, &inside, 1, (uintptr_t)buffer, mr->rkey) == IBV_WC_SUCCESS);
    CHECK(memcmp(buffer, text, 8) == 0);
    CHECK(ibv_dereg_mr(region) == 0 && ibv_free_dm(dm) == 0);
}

int main(void) {
    open_first();
    cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    for (int i = 0; i < 2; i++) {
        qps[i] = make_qp(IBV_QPT_RC, cq, NULL);
        to_init(qps[i]);
    }
    connect_qp(qps[0], qps[1]->qp_num);
    connect_qp(qps[1], qps[0]->qp_num);
    test_device_memory();
    test_null();
    for (int i = 0; i < 2; i++)
        CHECK(ibv_destroy_qp(qps[i]) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
    close_all();
    return 0;
}
