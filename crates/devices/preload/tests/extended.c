// Walks the extended interface: batches of requests, extended completion queues, attributes of the device, domains.
#include "verbs.h"
#include <sys/mman.h>

#define RC_OPS (IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM | IBV_QP_EX_WITH_RDMA_WRITE | \
    IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | \
    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD)

static struct ibv_qp_init_attr_ex init_ex(enum ibv_qp_type type, struct ibv_cq *cq, unsigned long ops) {
    struct ibv_qp_init_attr_ex init = {
        .send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = pd, .send_ops_flags = ops,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64},
    };
    return init;
}

// Two queue pairs of this process, the first of them extended, connected in RTS.
static struct ibv_qp_ex *make_pair(enum ibv_qp_type type, struct ibv_cq *cq, unsigned long ops, struct ibv_qp **peer) {
    struct ibv_qp_init_attr_ex init = init_ex(type, cq, ops);
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    CHECK(qp && init.cap.max_inline_data >= 64);
    *peer = make_qp(type, cq, NULL);
    to_init(qp);
    to_init(*peer);
    connect_qp(qp, (*peer)->qp_num);
    connect_qp(*peer, qp->qp_num);
    struct ibv_qp_ex *ex = ibv_qp_to_qp_ex(qp);
    CHECK(ex && &ex->qp_base == qp);
    ex->wr_flags = IBV_SEND_SIGNALED;
    return ex;
}

static void destroy_pair(struct ibv_qp_ex *qp, struct ibv_qp *peer) {
    CHECK(ibv_destroy_qp(&qp->qp_base) == 0);
    CHECK(ibv_destroy_qp(peer) == 0);
}

static void expect(struct ibv_cq *cq, unsigned long id, enum ibv_wc_opcode opcode) {
    struct ibv_wc wc = next_completion(cq);
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.wr_id == id && wc.opcode == opcode);
}

static void nothing_completes(struct ibv_cq *cq) {
    struct ibv_wc wc;
    CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
}

static void batches(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_qp *peer;
    struct ibv_qp_ex *qp = make_pair(IBV_QPT_RC, cq, RC_OPS, &peer);
    char *from = buffer, *to = buffer + 4096;
    unsigned long *word = (void *)(buffer + 8192), *old = (void *)(buffer + 8200);

    // Inline data is copied by the setter, and lists are joined.
    ibv_wr_start(qp);
    char text[] = "inline";
    qp->wr_id = 1;
    ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)to);
    ibv_wr_set_inline_data(qp, text, 7);
    memset(text, 'x', 6);
    qp->wr_id = 2;
    ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)to + 16);
    struct ibv_data_buf parts[] = {{"two ", 4}, {"parts", 6}};
    ibv_wr_set_inline_data_list(qp, 2, parts);
    qp->wr_id = 3;
    ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)to + 32);
    memcpy(from, "gathered", 9);
    struct ibv_sge sges[] = {{(uintptr_t)from, 4, mr->lkey}, {(uintptr_t)from + 4, 5, mr->lkey}};
    ibv_wr_set_sge_list(qp, 2, sges);
    CHECK(ibv_wr_complete(qp) == 0);
    for (int id = 1; id <= 3; id++)
        expect(cq, id, IBV_WC_RDMA_WRITE);
    CHECK(!strcmp(to, "inline") && !strcmp(to + 16, "two parts") && !strcmp(to + 32, "gathered"));

    // READ and atomics.
    *word = 5;
    ibv_wr_start(qp);
    qp->wr_id = 4;
    ibv_wr_rdma_read(qp, mr->rkey, (uintptr_t)to);
    ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)from, 7);
    qp->wr_id = 5;
    ibv_wr_atomic_fetch_add(qp, mr->rkey, (uintptr_t)word, 3);
    ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)old, 8);
    qp->wr_id = 6;
    ibv_wr_atomic_cmp_swp(qp, mr->rkey, (uintptr_t)word, 8, 100);
    ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)old + 8, 8);
    CHECK(ibv_wr_complete(qp) == 0);
    expect(cq, 4, IBV_WC_RDMA_READ);
    expect(cq, 5, IBV_WC_FETCH_ADD);
    expect(cq, 6, IBV_WC_COMP_SWAP);
    CHECK(!strcmp(from, "inline") && *word == 100 && old[0] == 5 && old[1] == 8);

    // SEND and immediate data.
    post_recv(peer, 10, 12288, 64);
    post_recv(peer, 11, 12288, 64);
    ibv_wr_start(qp);
    qp->wr_id = 7;
    ibv_wr_send_imm(qp, htobe32(0x01020304));
    ibv_wr_set_inline_data(qp, "hello", 6);
    qp->wr_id = 8;
    ibv_wr_rdma_write_imm(qp, mr->rkey, (uintptr_t)to, htobe32(9));
    ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)from, 4);
    CHECK(ibv_wr_complete(qp) == 0);
    unsigned seen = 0;
    for (int i = 0; i < 4; i++) {
        struct ibv_wc wc = next_completion(cq);
        CHECK(wc.status == IBV_WC_SUCCESS);
        seen |= 1u << wc.wr_id;
        if (wc.wr_id == 10)
            CHECK(wc.wc_flags == IBV_WC_WITH_IMM && be32toh(wc.imm_data) == 0x01020304 && wc.byte_len == 6);
        if (wc.wr_id == 11)
            CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && be32toh(wc.imm_data) == 9);
    }
    CHECK(seen == (1u << 7 | 1u << 8 | 1u << 10 | 1u << 11) && !strcmp(buffer + 12288, "hello"));

    // An aborted batch has no effect, and the next one none of its requests.
    ibv_wr_start(qp);
    qp->wr_id = 20;
    ibv_wr_send(qp);
    ibv_wr_abort(qp);
    ibv_wr_start(qp);
    CHECK(ibv_wr_complete(qp) == 0);
    nothing_completes(cq);
    destroy_pair(qp, peer);
    CHECK(ibv_destroy_cq(cq) == 0);
}

// A batch of two requests, of which the second is wrong: none is posted.
#define REFUSED_BATCH(number, wrong)                                  \
    do {                                                              \
        ibv_wr_start(qp);                                             \
        qp->wr_id = 1;                                                \
        ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)buffer + 4096);    \
        ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)buffer, 8);           \
        qp->wr_id = 2;                                                \
        wrong;                                                        \
        REFUSED(ibv_wr_complete(qp), number);                         \
        nothing_completes(cq);                                        \
    } while (0)

static void refused_batches(void) {
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_qp *peer;
    struct ibv_qp_ex *qp = make_pair(IBV_QPT_RC, cq, RC_OPS & ~IBV_QP_EX_WITH_RDMA_READ, &peer);
    char data[65];
    struct ibv_sge sges[3] = {{(uintptr_t)buffer, 1, mr->lkey}};
    memset(data, 0, sizeof data);

    REFUSED_BATCH(EINVAL, ibv_wr_send(qp); ibv_wr_set_inline_data(qp, data, 65));
    REFUSED_BATCH(EINVAL, ibv_wr_send(qp); ibv_wr_set_sge_list(qp, 3, sges));
    REFUSED_BATCH(EINVAL, ibv_wr_rdma_read(qp, mr->rkey, (uintptr_t)buffer));
    REFUSED_BATCH(EINVAL, ibv_wr_atomic_fetch_add(qp, mr->rkey, (uintptr_t)buffer, 1); ibv_wr_set_inline_data(qp, data, 8));
    REFUSED_BATCH(EINVAL, ibv_wr_send_inv(qp, 1));
    REFUSED_BATCH(EINVAL, ibv_wr_local_inv(qp, 1));
    REFUSED_BATCH(EINVAL, ibv_wr_bind_mw(qp, NULL, 1, &(struct ibv_mw_bind_info){0}));
    REFUSED_BATCH(EOPNOTSUPP, ibv_wr_send_tso(qp, data, 1, 1));
    REFUSED_BATCH(ENOMEM, for (int i = 0; i < 16; i++) ibv_wr_send(qp));
    ibv_wr_start(qp);
    ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)buffer, 8);
    REFUSED(ibv_wr_complete(qp), EINVAL);

    // The queue pair still works, and is refused after a reset.
    ibv_wr_start(qp);
    qp->wr_id = 3;
    ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)buffer);
    CHECK(ibv_wr_complete(qp) == 0);
    expect(cq, 3, IBV_WC_RDMA_WRITE);
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};
    CHECK(ibv_modify_qp(&qp->qp_base, &reset, IBV_QP_STATE) == 0);
    REFUSED_BATCH(EINVAL, ibv_wr_send(qp));
    destroy_pair(qp, peer);

    struct ibv_qp_init_attr_ex init = init_ex(IBV_QPT_UD, cq, IBV_QP_EX_WITH_RDMA_WRITE);
    NULLED(ibv_create_qp_ex(context, &init), EOPNOTSUPP);
    init = init_ex(IBV_QPT_UC, cq, IBV_QP_EX_WITH_SEND_WITH_INV);
    NULLED(ibv_create_qp_ex(context, &init), EOPNOTSUPP);
    init = init_ex(IBV_QPT_RC, cq, IBV_QP_EX_WITH_TSO);
    NULLED(ibv_create_qp_ex(context, &init), EOPNOTSUPP);
    init = init_ex(IBV_QPT_RC, cq, 0);
    init.comp_mask = IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
    NULLED(ibv_create_qp_ex(context, &init), EINVAL);
    init.comp_mask = IBV_QP_INIT_ATTR_PD;
    struct ibv_qp *plain = ibv_create_qp_ex(context, &init);
    CHECK(plain && ibv_qp_to_qp_ex(plain) == NULL);
    CHECK(ibv_destroy_qp(plain) == 0);
    CHECK(ibv_destroy_cq(cq) == 0);
}

// Waits for the next completion of an extended queue, for at most a minute.
static void start_poll(struct ibv_cq_ex *cq) {
    struct ibv_poll_cq_attr attr = {0};
    time_t begin = time(NULL);
    int found;
    while ((found = ibv_start_poll(cq, &attr)) == ENOENT)
        CHECK(time(NULL) - begin < 60);
    CHECK(found == 0);
}

static unsigned long long now(clockid_t clock) {
    struct timespec time;
    clock_gettime(clock, &time);
    return time.tv_sec * 1000000000ull + time.tv_nsec;
}

static void extended_completions(void) {
    struct ibv_cq_init_attr_ex init = {
        .cqe = 64, .cq_context = &pd,
        .wc_flags = IBV_WC_STANDARD_FLAGS | IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
            IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK,
    };
    struct ibv_cq_ex *cq = ibv_create_cq_ex(context, &init);
    CHECK(cq && cq->cq_context == &pd && cq->cqe >= 64);
    struct ibv_poll_cq_attr attr = {0}, wrong = {.comp_mask = 1};
    CHECK(ibv_start_poll(cq, &attr) == ENOENT);
    CHECK(ibv_start_poll(cq, &wrong) == EINVAL);

    struct ibv_qp *peer;
    struct ibv_qp_ex *qp = make_pair(IBV_QPT_UD, ibv_cq_ex_to_cq(cq), IBV_QP_EX_WITH_SEND_WITH_IMM, &peer);
    struct ibv_ah_attr address = address_of_port();
    struct ibv_ah *ah = ibv_create_ah(pd, &address);
    CHECK(ah);
    unsigned long long monotonic = now(CLOCK_MONOTONIC), wallclock = now(CLOCK_REALTIME);
    post_recv(peer, 1, 4096, 64);
    ibv_wr_start(qp);
    qp->wr_id = 2;
    ibv_wr_send_imm(qp, htobe32(77));
    ibv_wr_set_ud_addr(qp, ah, peer->qp_num, 0x11);
    ibv_wr_set_inline_data(qp, "datagram", 9);
    CHECK(ibv_wr_complete(qp) == 0);

    int received = 0, sent = 0;
    while (!(received && sent)) {
        start_poll(cq);
        do {
            CHECK(cq->status == IBV_WC_SUCCESS && ibv_wc_read_vendor_err(cq) == 0);
            CHECK(ibv_wc_read_completion_ts(cq) >= monotonic && ibv_wc_read_completion_ts(cq) <= now(CLOCK_MONOTONIC));
            CHECK(ibv_wc_read_completion_wallclock_ns(cq) >= wallclock);
            if (cq->wr_id == 2) {
                sent++;
                CHECK(ibv_wc_read_opcode(cq) == IBV_WC_SEND && ibv_wc_read_qp_num(cq) == qp->qp_base.qp_num);
                continue;
            }
            received++;
            CHECK(cq->wr_id == 1 && ibv_wc_read_opcode(cq) == IBV_WC_RECV);
            CHECK(ibv_wc_read_byte_len(cq) == 40 + 9 && be32toh(ibv_wc_read_imm_data(cq)) == 77);
            CHECK(ibv_wc_read_wc_flags(cq) == (IBV_WC_GRH | IBV_WC_WITH_IMM));
            CHECK(ibv_wc_read_qp_num(cq) == peer->qp_num && ibv_wc_read_src_qp(cq) == qp->qp_base.qp_num);
            ibv_wc_read_slid(cq);
            ibv_wc_read_sl(cq);
            ibv_wc_read_dlid_path_bits(cq);
        } while (ibv_next_poll(cq) == 0);
        ibv_end_poll(cq);
    }
    CHECK(received == 1 && sent == 1 && !strcmp(buffer + 4096 + 40, "datagram"));
    CHECK(ibv_destroy_ah(ah) == 0);
    destroy_pair(qp, peer);
    REFUSED(ibv_modify_cq(ibv_cq_ex_to_cq(cq), &(struct ibv_modify_cq_attr){.attr_mask = IBV_CQ_ATTR_MODERATE}), EOPNOTSUPP);
    CHECK(ibv_resize_cq(ibv_cq_ex_to_cq(cq), 128) == 0 && cq->cqe >= 128);
    CHECK(ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);

    init.wc_flags = IBV_WC_EX_WITH_CVLAN;
    NULLED(ibv_create_cq_ex(context, &init), EOPNOTSUPP);
    init.wc_flags = 0;
    init.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS;
    init.flags = IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
    NULLED(ibv_create_cq_ex(context, &init), EOPNOTSUPP);
    init.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
    cq = ibv_create_cq_ex(context, &init);
    CHECK(cq && ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) == 0);
}

static void device_attributes(void) {
    struct ibv_device_attr plain;
    struct ibv_device_attr_ex attr;
    CHECK(ibv_query_device(context, &plain) == 0);
    memset(&attr, 0xff, sizeof attr);
    CHECK(ibv_query_device_ex(context, NULL, &attr) == 0);
    CHECK(attr.orig_attr.node_guid == plain.node_guid && attr.orig_attr.max_srq_sge == plain.max_srq_sge);
    CHECK(attr.completion_timestamp_mask == ~0ull && attr.hca_core_clock == 1000000 && attr.max_dm_size > 0);
    CHECK(attr.odp_caps.general_caps == 0 && attr.phys_port_cnt_ex == 1 && attr.comp_mask == 0);

    // A program built with older headers passes fewer bytes, one with newer headers more.
    struct verbs_context *extended = verbs_get_ctx_op(context, query_device_ex);
    struct ibv_query_device_ex_input input = {0};
    CHECK(extended);
    _Alignas(8) unsigned char room[sizeof attr + 8];
    size_t older = offsetof(struct ibv_device_attr_ex, completion_timestamp_mask);
    memset(room, 0xff, sizeof room);
    CHECK(extended->query_device_ex(context, &input, (void *)room, older) == 0);
    CHECK(((struct ibv_device_attr_ex *)room)->orig_attr.max_qp == plain.max_qp && room[older] == 0xff);
    CHECK(extended->query_device_ex(context, &input, (void *)room, sizeof room) == 0);
    CHECK(((struct ibv_device_attr_ex *)room)->hca_core_clock == attr.hca_core_clock && room[sizeof attr] == 0);
    REFUSED(extended->query_device_ex(context, &input, (void *)room, sizeof plain - 1), EINVAL);
    input.comp_mask = 1;
    REFUSED(extended->query_device_ex(context, &input, (void *)room, sizeof attr), EINVAL);

    struct ibv_values_ex values = {.comp_mask = IBV_VALUES_MASK_RAW_CLOCK};
    unsigned long long before = now(CLOCK_MONOTONIC);
    CHECK(ibv_query_rt_values_ex(context, &values) == 0);
    CHECK(values.comp_mask == IBV_VALUES_MASK_RAW_CLOCK && values.raw_clock.tv_sec == 0);
    CHECK((unsigned long long)values.raw_clock.tv_nsec >= before);
    values.comp_mask = 2;
    REFUSED(ibv_query_rt_values_ex(context, &values), EINVAL);
}

static void *allocate(struct ibv_pd *domain, void *own, size_t size, size_t alignment, uint64_t kind) {
    return NULL;
}

static void domains(void) {
    struct ibv_td_init_attr none = {0}, unknown = {.comp_mask = 1};
    NULLED(ibv_alloc_td(context, &unknown), EINVAL);
    struct ibv_td *td = ibv_alloc_td(context, &none);
    CHECK(td && td->context == context);
    struct ibv_parent_domain_init_attr attr = {.td = td};
    NULLED(ibv_alloc_parent_domain(context, &attr), EINVAL);
    attr.pd = pd;
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS;
    attr.alloc = allocate;
    NULLED(ibv_alloc_parent_domain(context, &attr), EOPNOTSUPP);
    attr.comp_mask = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
    struct ibv_pd *parent = ibv_alloc_parent_domain(context, &attr);
    CHECK(parent && parent != pd && parent->context == context);

    // A queue pair of the parent domain has access to regions of the protection domain.
    struct ibv_cq *cq = ibv_create_cq(context, 64, NULL, NULL, 0);
    struct ibv_pd *own = pd;
    pd = parent;
    struct ibv_qp *peer;
    struct ibv_qp_ex *qp = make_pair(IBV_QPT_UC, cq, IBV_QP_EX_WITH_RDMA_WRITE, &peer);
    pd = own;
    ibv_wr_start(qp);
    qp->wr_id = 1;
    ibv_wr_rdma_write(qp, mr->rkey, (uintptr_t)buffer + 4096);
    ibv_wr_set_sge(qp, mr->lkey, (uintptr_t)buffer, 8);
    CHECK(ibv_wr_complete(qp) == 0);
    expect(cq, 1, IBV_WC_RDMA_WRITE);
    REFUSED(ibv_dealloc_pd(parent), EBUSY);
    destroy_pair(qp, peer);
    CHECK(ibv_destroy_cq(cq) == 0);
    REFUSED(ibv_dealloc_td(td), EBUSY);
    CHECK(ibv_dealloc_pd(parent) == 0);
    CHECK(ibv_dealloc_td(td) == 0);

    // A parent domain uses its protection domain.
    attr = (struct ibv_parent_domain_init_attr){.pd = ibv_alloc_pd(context)};
    parent = ibv_alloc_parent_domain(context, &attr);
    REFUSED(ibv_dealloc_pd(attr.pd), EBUSY);
    CHECK(ibv_dealloc_pd(parent) == 0 && ibv_dealloc_pd(attr.pd) == 0);
}

static void shared_receive_queues(void) {
    struct ibv_srq_init_attr_ex init = {
        .attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_BASIC, .pd = pd, .srq_context = &pd,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD,
    };
    struct ibv_srq *srq = ibv_create_srq_ex(context, &init);
    CHECK(srq && srq->srq_context == &pd && init.attr.max_wr >= 8);
    unsigned number;
    CHECK(ibv_get_srq_num(srq, &number) == 0);
    CHECK(ibv_destroy_srq(srq) == 0);
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE;
    NULLED(ibv_create_srq_ex(context, &init), EINVAL);
    init.comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD;
    init.srq_type = IBV_SRQT_XRC;
    NULLED(ibv_create_srq_ex(context, &init), EINVAL);
    init.srq_type = IBV_SRQT_TM;
    NULLED(ibv_create_srq_ex(context, &init), EOPNOTSUPP);
}

static void missing_features(void) {
    NULLED(ibv_create_counters(context, &(struct ibv_counters_init_attr){0}), EOPNOTSUPP);
    NULLED(ibv_create_wq(context, &(struct ibv_wq_init_attr){0}), EOPNOTSUPP);
    NULLED(ibv_import_device(0), EOPNOTSUPP);
    NULLED(ibv_import_pd(context, 1), EOPNOTSUPP);
    NULLED(ibv_import_mr(pd, 1), EOPNOTSUPP);
}

static void advice(void) {
    size_t length = 16 * 4096;
    unsigned char present[16];
    char *memory = mmap(NULL, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    struct ibv_mr *readable = ibv_reg_mr(pd, memory, length, 0);
    CHECK(memory != MAP_FAILED && readable);
    CHECK(madvise(memory, length, MADV_DONTNEED) == 0);
    struct ibv_sge sges[] = {{(uintptr_t)memory + 100, length - 100, readable->lkey}, {(uintptr_t)buffer, SIZE, mr->lkey}};
    CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, 0, sges, 2) == 0);
    CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, IBV_ADVISE_MR_FLAG_FLUSH, sges, 2) == 0);
    CHECK(mincore(memory, length, present) == 0);
    int populates = madvise(NULL, 0, 22) == 0; // MADV_POPULATE_READ: Linux 5.14
    for (int page = 0; page < 16; page++)
        CHECK(!populates || present[page] & 1);
    CHECK(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, sges + 1, 1) == 0);
    REFUSED(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE, 0, sges, 2), EPERM);
    REFUSED(ibv_advise_mr(pd, 77, 0, sges, 1), EOPNOTSUPP);
    REFUSED(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 8, sges, 1), EINVAL);
    struct ibv_pd *other = ibv_alloc_pd(context);
    REFUSED(ibv_advise_mr(other, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sges, 1), EPERM);
    CHECK(ibv_dealloc_pd(other) == 0);
    sges[1].length++;
    REFUSED(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sges, 2), EFAULT);
    sges[1].lkey ^= 1;
    REFUSED(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sges, 2), EFAULT);
    CHECK(munmap(memory, length) == 0);
    REFUSED(ibv_advise_mr(pd, IBV_ADVISE_MR_ADVICE_PREFETCH, 0, sges, 1), EFAULT);
    CHECK(ibv_dereg_mr(readable) == 0);
}

int main(void) {
    open_first();
    device_attributes();
    missing_features();
    advice();
    batches();
    refused_batches();
    extended_completions();
    domains();
    shared_receive_queues();
    close_all();
    return 0;
}
