// Walks the verbs and their errors, with queue pairs of one process.
#include "verbs.h"
#include <glob.h>
#include <sys/stat.h>

static void test_queries(void) {
    struct ibv_device_attr device;
    struct ibv_port_attr port;
    union ibv_gid gid;
    uint16_t pkey;
    CHECK(ibv_query_device(context, &device) == 0 && device.phys_port_cnt == 1);
    CHECK(ibv_get_device_guid(context->device) == device.node_guid);
    CHECK(ibv_query_port(context, 1, &port) == 0 && port.state == IBV_PORT_ACTIVE);
    CHECK(port.link_layer == IBV_LINK_LAYER_ETHERNET && port.gid_tbl_len >= 1);
    REFUSED(ibv_query_port(context, 2, &port), EINVAL);
    FAILED(ibv_query_gid(context, 1, port.gid_tbl_len, &gid), EINVAL);
    FAILED(ibv_query_gid(context, 0, 0, &gid), EINVAL);
    CHECK(ibv_query_pkey(context, 1, 0, &pkey) == 0 && pkey == 0xffff);
    FAILED(ibv_query_pkey(context, 1, 1, &pkey), EINVAL);
    CHECK(ibv_get_pkey_index(context, 1, 0xffff) == 0);
    struct ibv_gid_entry entry, table[4];
    CHECK(ibv_query_gid_ex(context, 1, 0, &entry, 0) == 0 && entry.gid_type == IBV_GID_TYPE_ROCE_V2);
    CHECK(entry.ndev_ifindex > 0);
    REFUSED(ibv_query_gid_ex(context, 1, 0, &entry, 1), EINVAL);
    CHECK(ibv_query_gid_table(context, table, 4, 0) == port.gid_tbl_len);
    CHECK(memcmp(&table[0].gid, &entry.gid, sizeof entry.gid) == 0);
}

static void test_memory(void) {
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mr *local = ibv_reg_mr(other, buffer, SIZE, IBV_ACCESS_LOCAL_WRITE);
    CHECK(local && local->lkey != mr->lkey);
    REFUSED(ibv_dealloc_pd(other), EBUSY);
    CHECK(ibv_rereg_mr(local, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == 0);
    CHECK(ibv_rereg_mr(local, IBV_REREG_MR_CHANGE_PD, pd, NULL, 0, 0) == 0 && local->pd == pd);
    CHECK(ibv_rereg_mr(local, IBV_REREG_MR_CHANGE_TRANSLATION, NULL, buffer + 4096, 4096, 0) == 0);
    CHECK(local->addr == buffer + 4096 && local->length == 4096);
    CHECK(ibv_rereg_mr(local, 0, NULL, NULL, 0, 0) == IBV_REREG_MR_ERR_INPUT);
    CHECK(ibv_dealloc_pd(other) == 0);
    CHECK(ibv_dereg_mr(local) == 0);
    NULLED(ibv_reg_mr(pd, buffer, SIZE, IBV_ACCESS_REMOTE_WRITE), EINVAL);
    NULLED(ibv_reg_mr(pd, (void *)4096, SIZE, IBV_ACCESS_LOCAL_WRITE), EFAULT);
}

static void test_modify(struct ibv_cq *cq) {
    struct ibv_qp *qp = make_qp(IBV_QPT_RC, cq, NULL);
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1};
    struct ibv_qp_init_attr init;
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
    REFUSED(ibv_modify_qp(qp, &attr, mask & ~IBV_QP_PORT), EINVAL);
    REFUSED(ibv_modify_qp(qp, &attr, mask | IBV_QP_QKEY), EINVAL);
    REFUSED(ibv_modify_qp(qp, &attr, mask | 1 << 30), EINVAL);
    attr.port_num = 2;
    REFUSED(ibv_modify_qp(qp, &attr, mask), EINVAL);
    attr.port_num = 1, attr.pkey_index = 1;
    REFUSED(ibv_modify_qp(qp, &attr, mask), EINVAL);
    attr.pkey_index = 0, attr.qp_state = IBV_QPS_RTS;
    REFUSED(ibv_modify_qp(qp, &attr, IBV_QP_STATE), EINVAL);
    CHECK(qp->state == IBV_QPS_RESET);
    to_init(qp);
    attr = rtr_attr(qp->qp_num);
    attr.path_mtu = 9;
    REFUSED(ibv_modify_qp(qp, &attr, RTR_MASK), EINVAL);
    attr.path_mtu = IBV_MTU_1024, attr.ah_attr.grh.sgid_index = 200;
    REFUSED(ibv_modify_qp(qp, &attr, RTR_MASK), EINVAL);
    connect_qp(qp, qp->qp_num);
    memset(&attr, 0, sizeof attr);
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0);
    CHECK(attr.qp_state == IBV_QPS_RTS && attr.dest_qp_num == qp->qp_num && attr.rq_psn == 7 && attr.timeout == 14);
    CHECK(attr.path_mtu == IBV_MTU_1024 && attr.port_num == 1 && attr.cap.max_send_wr >= 16);
    CHECK(init.send_cq == cq && init.qp_type == IBV_QPT_RC);
    attr.cur_qp_state = IBV_QPS_SQD;
    REFUSED(ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_CUR_STATE), EINVAL);
    attr.qp_state = IBV_QPS_ERR;
    CHECK(ibv_modify_qp(qp, &attr, IBV_QP_STATE) == 0);
    post_recv(qp, 5, 0, 1);
    struct ibv_wc wc = next_completion(cq);
    CHECK(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 5 && wc.qp_num == qp->qp_num);
    CHECK(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
    REFUSED(ibv_destroy_cq(cq), EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0);
}

// Posts one request and returns its completion.
static struct ibv_wc carry_out(struct ibv_qp *qp, struct ibv_cq *cq, struct ibv_send_wr wr) {
    struct ibv_send_wr *bad = NULL;
    wr.send_flags |= IBV_SEND_SIGNALED;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    return next_completion(cq);
}

static void test_connection(enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_cq *recv_cq) {
    struct ibv_qp *a = make_qp(type, cq, NULL), *b = make_qp(type, recv_cq, NULL);
    to_init(a), to_init(b);
    post_recv(b, 1, 0, 100), post_recv(b, 2, 200, 100), post_recv(b, 3, 300, 100);
    connect_qp(a, b->qp_num), connect_qp(b, a->qp_num);
    strcpy(buffer + 1000, "hello");
    struct ibv_sge sge = {(uintptr_t)buffer + 1000, 6, mr->lkey};
    struct ibv_send_wr wr = {.wr_id = 9, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND};
    struct ibv_wc wc = carry_out(a, cq, wr);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.opcode == IBV_WC_SEND && wc.wr_id == 9 && wc.qp_num == a->qp_num);
    wc = next_completion(recv_cq);
    CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 6 && wc.wr_id == 1 && wc.wc_flags == 0);
    CHECK(strcmp(buffer, "hello") == 0);

    // Inline data needs no key, and its buffer may change after the call.
    char text[] = "inline";
    sge = (struct ibv_sge){(uintptr_t)text, 7, 0};
    wr.opcode = IBV_WR_SEND_WITH_IMM, wr.imm_data = htobe32(77), wr.send_flags = IBV_SEND_INLINE;
    CHECK(carry_out(a, cq, wr).status == IBV_WC_SUCCESS);
    wc = next_completion(recv_cq);
    CHECK(wc.wc_flags == IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 77 && strcmp(buffer + 200, "inline") == 0);

    sge = (struct ibv_sge){(uintptr_t)buffer + 1000, 6, mr->lkey};
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM, wr.send_flags = 0;
    wr.wr.rdma.remote_addr = (uintptr_t)buffer + 2000, wr.wr.rdma.rkey = mr->rkey;
    CHECK(carry_out(a, cq, wr).opcode == IBV_WC_RDMA_WRITE);
    wc = next_completion(recv_cq);
    CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.byte_len == 6 && strcmp(buffer + 2000, "hello") == 0);

    struct ibv_send_wr *bad = NULL, second = wr, first = wr;
    second.num_sge = 3, first.next = &second, first.opcode = IBV_WR_RDMA_WRITE;
    REFUSED(ibv_post_send(a, &first, &bad), EINVAL);
    CHECK(bad == &second);
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr.rdma.remote_addr = (uintptr_t)buffer + 2000;
    sge.addr = (uintptr_t)buffer + 3000;
    if (type == IBV_QPT_UC) {
        REFUSED(ibv_post_send(a, &wr, &bad), EINVAL);
    } else {
        wc = carry_out(a, cq, wr);
        CHECK(wc.opcode == IBV_WC_RDMA_READ && wc.byte_len == 6 && strcmp(buffer + 3000, "hello") == 0);
        *(uint64_t *)(buffer + 4096) = 40;
        sge = (struct ibv_sge){(uintptr_t)buffer + 5000, 8, mr->lkey};
        wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        wr.wr.atomic.remote_addr = (uintptr_t)buffer + 4096, wr.wr.atomic.rkey = mr->rkey;
        wr.wr.atomic.compare_add = 2;
        CHECK(carry_out(a, cq, wr).opcode == IBV_WC_FETCH_ADD && *(uint64_t *)(buffer + 4096) == 42);
        wr.opcode = IBV_WR_ATOMIC_CMP_AND_SWP, wr.wr.atomic.compare_add = 42, wr.wr.atomic.swap = 1;
        CHECK(carry_out(a, cq, wr).opcode == IBV_WC_COMP_SWAP && *(uint64_t *)(buffer + 4096) == 1);
        CHECK(*(uint64_t *)(buffer + 5000) == 42);
        // The old value may be scattered.
        struct ibv_sge parts[2] = {{(uintptr_t)buffer + 5100, 3, mr->lkey}, {(uintptr_t)buffer + 5200, 5, mr->lkey}};
        *(uint64_t *)(buffer + 4096) = 0x0807060504030201;
        wr.sg_list = parts, wr.num_sge = 2, wr.opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
        CHECK(carry_out(a, cq, wr).status == IBV_WC_SUCCESS);
        uint64_t old = 0x0807060504030201;
        CHECK(memcmp(buffer + 5100, &old, 3) == 0 && memcmp(buffer + 5200, (char *)&old + 3, 5) == 0);
        wr.sg_list = &sge, wr.num_sge = 1;
        // A wrong key moves both queue pairs to the error state.
        wr.opcode = IBV_WR_RDMA_WRITE, wr.wr.rdma.rkey = mr->rkey ^ 1 << 20;
        CHECK(carry_out(a, cq, wr).status == IBV_WC_REM_ACCESS_ERR);
    }
    CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
}

static void test_local_key(struct ibv_cq *cq, struct ibv_cq *recv_cq) {
    struct ibv_qp *a = make_qp(IBV_QPT_RC, cq, NULL), *b = make_qp(IBV_QPT_RC, recv_cq, NULL);
    to_init(a), to_init(b);
    connect_qp(a, b->qp_num), connect_qp(b, a->qp_num);
    struct ibv_sge sge = {(uintptr_t)buffer, 6, mr->lkey ^ 1 << 20};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    CHECK(carry_out(a, cq, wr).status == IBV_WC_LOC_PROT_ERR);
    wr.opcode = IBV_WR_TSO;
    CHECK(ibv_post_send(a, &wr, &bad) == EOPNOTSUPP && bad == &wr);
    CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
}

// Whoever has polled the completion of a failed receive finds the queue pair in the error state.
static void test_state_after_failed_receive(struct ibv_cq *cq, struct ibv_cq *recv_cq) {
    for (int round = 0; round < 100; round++) {
        struct ibv_qp *a = make_qp(IBV_QPT_RC, cq, NULL), *b = make_qp(IBV_QPT_RC, recv_cq, NULL);
        to_init(a), to_init(b);
        connect_qp(a, b->qp_num), connect_qp(b, a->qp_num);
        post_recv(b, 1, 0, 4);
        struct ibv_sge sge = {(uintptr_t)buffer, 6, mr->lkey};
        struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
        CHECK(ibv_post_send(a, &wr, &bad) == 0);
        CHECK(next_completion(recv_cq).status == IBV_WC_LOC_LEN_ERR);
        struct ibv_qp_attr attr;
        struct ibv_qp_init_attr init;
        CHECK(ibv_query_qp(b, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_ERR);
        CHECK(next_completion(cq).status == IBV_WC_REM_INV_REQ_ERR);
        CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
    }
}

static void test_datagrams(struct ibv_cq *cq, struct ibv_cq *recv_cq) {
    struct ibv_qp *a = make_qp(IBV_QPT_UD, cq, NULL), *b = make_qp(IBV_QPT_UD, recv_cq, NULL);
    to_init(a), to_init(b);
    connect_qp(a, 0), connect_qp(b, 0);
    post_recv(b, 1, 0, 1000), post_recv(a, 2, 4096, 1000);
    struct ibv_ah_attr attr = address_of_port();
    struct ibv_ah *ah = ibv_create_ah(pd, &attr);
    CHECK(ah && ah->pd == pd);
    strcpy(buffer + 8192, "datagram");
    struct ibv_sge sge = {(uintptr_t)buffer + 8192, 9, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    REFUSED(ibv_post_send(a, &wr, &bad), EINVAL);
    wr.wr.ud.ah = ah, wr.wr.ud.remote_qpn = b->qp_num, wr.wr.ud.remote_qkey = 0x11;
    CHECK(carry_out(a, cq, wr).status == IBV_WC_SUCCESS);
    struct ibv_wc wc = next_completion(recv_cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.src_qp == a->qp_num && wc.wc_flags & IBV_WC_GRH);
    CHECK(wc.byte_len == 49 && strcmp(buffer + 40, "datagram") == 0);
    struct ibv_ah *back = ibv_create_ah_from_wc(pd, &wc, (struct ibv_grh *)buffer, 1);
    CHECK(back);
    wr.wr.ud.ah = back, wr.wr.ud.remote_qpn = wc.src_qp;
    CHECK(carry_out(b, recv_cq, wr).status == IBV_WC_SUCCESS);
    CHECK(next_completion(cq).byte_len == 49);
    attr.grh.sgid_index = 100;
    NULLED(ibv_create_ah(pd, &attr), EINVAL);
    union ibv_gid group = attr.grh.dgid;
    REFUSED(ibv_attach_mcast(b, &group, 0), EINVAL);
    REFUSED(ibv_dealloc_pd(pd), EBUSY);
    CHECK(ibv_destroy_ah(ah) == 0 && ibv_destroy_ah(back) == 0);
    CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
}

static void test_events(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    struct ibv_cq *cq = ibv_create_cq(context, 10, &channel, channel, 0), *found;
    void *cq_context;
    CHECK(channel && cq && cq->channel == channel);
    CHECK(fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK) == 0);
    FAILED(ibv_get_cq_event(channel, &found, &cq_context), EAGAIN);
    REFUSED(ibv_destroy_comp_channel(channel), EBUSY);
    struct ibv_qp *a = make_qp(IBV_QPT_RC, cq, NULL), *b = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(a), to_init(b);
    post_recv(b, 1, 0, 100);
    connect_qp(a, b->qp_num), connect_qp(b, a->qp_num);
    CHECK(ibv_req_notify_cq(cq, 0) == 0);
    struct ibv_sge sge = {(uintptr_t)buffer + 1000, 6, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, *bad;
    CHECK(ibv_post_send(a, &wr, &bad) == 0);
    struct pollfd ready = {.fd = channel->fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 60000) == 1);
    CHECK(ibv_get_cq_event(channel, &found, &cq_context) == 0 && found == cq && cq_context == &channel);
    CHECK(poll(&ready, 1, 0) == 0);
    CHECK(next_completion(cq).opcode == IBV_WC_RECV);
    ibv_ack_cq_events(cq, 1);
    CHECK(ibv_resize_cq(cq, 20) == 0 && cq->cqe >= 20);
    CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_comp_channel(channel) == 0);
    NULLED(ibv_create_cq(context, 0, NULL, NULL, 0), EINVAL);
    NULLED(ibv_create_cq(context, 10, NULL, NULL, context->num_comp_vectors), EINVAL);
}

static void test_shared_receives(struct ibv_cq *cq, struct ibv_cq *recv_cq) {
    struct ibv_srq_init_attr init = {.attr = {.max_wr = 8, .max_sge = 1}};
    struct ibv_srq *srq = ibv_create_srq(pd, &init);
    CHECK(srq && init.attr.max_wr >= 8);
    struct ibv_qp *a = make_qp(IBV_QPT_RC, cq, NULL), *b = make_qp(IBV_QPT_RC, recv_cq, srq);
    to_init(a), to_init(b);
    connect_qp(a, b->qp_num), connect_qp(b, a->qp_num);
    struct ibv_sge sge = {(uintptr_t)buffer, 100, mr->lkey};
    struct ibv_recv_wr recv = {.wr_id = 3, .sg_list = &sge, .num_sge = 1}, *bad_recv;
    REFUSED(ibv_post_recv(b, &recv, &bad_recv), EINVAL);
    for (int i = 0; i < 3; i++)
        CHECK(ibv_post_srq_recv(srq, &recv, &bad_recv) == 0);
    struct ibv_srq_attr attr = {.srq_limit = 1000};
    REFUSED(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT), EINVAL);
    attr.srq_limit = 3;
    CHECK(ibv_modify_srq(srq, &attr, IBV_SRQ_LIMIT) == 0);
    CHECK(ibv_query_srq(srq, &attr) == 0 && attr.srq_limit == 3);
    REFUSED(ibv_destroy_srq(srq), EBUSY);
    struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
    CHECK(poll(&ready, 1, 0) == 0);
    struct ibv_sge from = {(uintptr_t)buffer + 1000, 6, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND};
    CHECK(carry_out(a, cq, wr).status == IBV_WC_SUCCESS);
    CHECK(poll(&ready, 1, 60000) == 1);
    struct ibv_async_event event;
    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_SRQ_LIMIT_REACHED && event.element.srq == srq);
    ibv_ack_async_event(&event);
    CHECK(poll(&ready, 1, 0) == 0);
    CHECK(next_completion(recv_cq).wr_id == 3);
    struct ibv_qp_attr error = {.qp_state = IBV_QPS_ERR};
    CHECK(ibv_modify_qp(b, &error, IBV_QP_STATE) == 0);
    CHECK(ibv_get_async_event(context, &event) == 0);
    CHECK(event.event_type == IBV_EVENT_QP_LAST_WQE_REACHED && event.element.qp == b);
    ibv_ack_async_event(&event);
    CHECK(fcntl(context->async_fd, F_SETFL, O_NONBLOCK) == 0);
    FAILED(ibv_get_async_event(context, &event), EAGAIN);
    CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0 && ibv_destroy_srq(srq) == 0);
}

static void *get_cq_event(void *channel) {
    struct ibv_cq *cq;
    void *cq_context;
    ibv_get_cq_event(channel, &cq, &cq_context);
    return NULL;
}

static void *get_async_event(void *unused) {
    (void)unused;
    struct ibv_async_event event;
    ibv_get_async_event(context, &event);
    return NULL;
}

static void *open_and_register(void *unused) {
    (void)unused;
    for (;; pthread_testcancel()) {
        struct ibv_context *second = ibv_open_device(context->device);
        struct ibv_mr *region = ibv_reg_mr(pd, buffer, SIZE, 0);
        CHECK(second && region && ibv_dereg_mr(region) == 0 && ibv_close_device(second) == 0);
    }
}

static void *open_fifo(void *path) {
    open(path, O_RDONLY);
    return NULL;
}

// A thread is cancelled where it is with rdma-core, and in the C library's functions.
static void test_cancellation(void) {
    struct ibv_comp_channel *channel = ibv_create_comp_channel(context);
    CHECK(channel);
    cancel(get_cq_event, channel);
    CHECK(ibv_destroy_comp_channel(channel) == 0);
    cancel(get_async_event, NULL);
    cancel(open_and_register, NULL);
    char path[4096];
    snprintf(path, sizeof path, "%s/fifo", getenv("ADVERB_SHM"));
    CHECK(mkfifo(path, 0600) == 0);
    cancel(open_fifo, path);
    CHECK(unlink(path) == 0);
}

static void test_files(void) {
    glob_t found;
    char expected[256];
    snprintf(expected, sizeof expected, "/sys/class/infiniband/%s/ports/1", ibv_get_device_name(context->device));
    CHECK(glob("/sys/class/infiniband/adverb*/ports/*", 0, NULL, &found) == 0);
    CHECK(found.gl_pathc == 1 && strcmp(found.gl_pathv[0], expected) == 0);
    globfree(&found);
    CHECK(glob("/sys/class/infiniband/adverb*/no-such-file*", 0, NULL, &found) == GLOB_NOMATCH);
    CHECK(glob("/etc/pass*d", 0, NULL, &found) == 0 && found.gl_pathc == 1);
    globfree(&found);
}

static void *walk(void *unused) {
    (void)unused;
    open_first();
    struct ibv_cq *cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    struct ibv_cq *recv_cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    CHECK(cq && recv_cq);
    test_queries();
    test_memory();
    test_modify(cq);
    test_connection(IBV_QPT_RC, cq, recv_cq);
    test_connection(IBV_QPT_UC, cq, recv_cq);
    test_state_after_failed_receive(cq, recv_cq);
    test_local_key(cq, recv_cq);
    test_datagrams(cq, recv_cq);
    test_events();
    test_cancellation();
    test_shared_receives(cq, recv_cq);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(recv_cq) == 0);
    test_files();
    close_all();
    return NULL;
}

// Threads of some programs have stacks of 64 KiB.
int main(void) {
    pthread_attr_t small;
    pthread_t thread;
    CHECK(pthread_attr_init(&small) == 0 && pthread_attr_setstacksize(&small, 64 << 10) == 0);
    CHECK(pthread_create(&thread, &small, walk, NULL) == 0 && pthread_join(thread, NULL) == 0);
    return 0;
}
