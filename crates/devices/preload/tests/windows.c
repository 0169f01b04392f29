// Walks memory windows: binds, accesses through them, invalidation, and what each refuses.
#include "verbs.h"

#define REMOTE (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
// The part of the region that windows give access to.
#define PART 8192
#define LENGTH 4096

static struct ibv_mr *region;
static struct ibv_cq *cq, *recv_cq;
// The requester and the owner of the windows.
static struct ibv_qp *client, *owner;

static void connect_pair(enum ibv_qp_type type) {
    client = make_qp(type, cq, NULL), owner = make_qp(type, recv_cq, NULL);
    to_init(client), to_init(owner);
    connect_qp(client, owner->qp_num), connect_qp(owner, client->qp_num);
}

static void destroy_pair(void) {
    CHECK(ibv_destroy_qp(client) == 0 && ibv_destroy_qp(owner) == 0);
}

// Carries out a request, whose status has to be `status`.
static struct ibv_wc carry_out(struct ibv_qp *qp, struct ibv_send_wr wr, enum ibv_wc_status status) {
    static unsigned long id;
    struct ibv_send_wr *bad;
    wr.wr_id = ++id, wr.send_flags = IBV_SEND_SIGNALED;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    struct ibv_wc wc = next_completion(qp->send_cq);
    if (wc.status != status || wc.wr_id != id || wc.qp_num != qp->qp_num)
        fprintf(stderr, "opcode %d: %s instead of %s\n", wr.opcode, ibv_wc_status_str(wc.status), ibv_wc_status_str(status));
    CHECK(wc.status == status && wc.wr_id == id && wc.qp_num == qp->qp_num);
    return wc;
}

static struct ibv_send_wr binding(struct ibv_mw *mw, unsigned rkey, struct ibv_mr *of, unsigned access) {
    struct ibv_send_wr wr = {.opcode = IBV_WR_BIND_MW};
    wr.bind_mw.mw = mw, wr.bind_mw.rkey = rkey;
    wr.bind_mw.bind_info = (struct ibv_mw_bind_info){of, (uintptr_t)buffer + PART, LENGTH, access};
    return wr;
}

static void bind(struct ibv_mw *mw, unsigned rkey, unsigned access) {
    CHECK(carry_out(owner, binding(mw, rkey, region, access), IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
}

// An access of the client to 8 bytes of the owner.
static void reach(enum ibv_wr_opcode opcode, unsigned rkey, uint64_t addr, enum ibv_wc_status status) {
    struct ibv_sge sge = {(uintptr_t)buffer + 128, 8, region->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode};
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        wr.wr.atomic.remote_addr = addr, wr.wr.atomic.rkey = rkey, wr.wr.atomic.compare_add = 1;
    else
        wr.wr.rdma.remote_addr = addr, wr.wr.rdma.rkey = rkey;
    carry_out(client, wr, status);
}

// The same, if the window does not allow it. The queue pairs end in the error state, so they are made again.
static void refused(enum ibv_wr_opcode opcode, unsigned rkey, uint64_t addr) {
    reach(opcode, rkey, addr, IBV_WC_REM_ACCESS_ERR);
    destroy_pair();
    connect_pair(IBV_QPT_RC);
}

// A bind that fails.
static void refused_bind(struct ibv_send_wr wr) {
    carry_out(owner, wr, IBV_WC_MW_BIND_ERR);
    destroy_pair();
    connect_pair(IBV_QPT_RC);
}

static void write_through(unsigned rkey, uint64_t addr) {
    static char mark;
    memset(buffer + 128, ++mark, 8);
    memset(buffer + PART, 0, LENGTH);
    reach(IBV_WR_RDMA_WRITE, rkey, addr, IBV_WC_SUCCESS);
    CHECK(memchr(buffer + PART, mark, LENGTH) != NULL);
}

static void attributes(void) {
    struct ibv_device_attr attr;
    CHECK(ibv_query_device(context, &attr) == 0 && attr.max_mw > 0);
    unsigned flags = IBV_DEVICE_MEM_WINDOW | IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
    CHECK((attr.device_cap_flags & flags) == flags);
    CHECK(!(attr.device_cap_flags & IBV_DEVICE_MEM_WINDOW_TYPE_2A));
    NULLED(ibv_alloc_mw(pd, 3), EINVAL);
}

static void bind_type_1(struct ibv_mw *mw, uint64_t length, unsigned access, enum ibv_wc_status status) {
    struct ibv_mw_bind to = {
        .wr_id = 9, .send_flags = IBV_SEND_SIGNALED,
        .bind_info = {length ? region : NULL, length ? (uintptr_t)buffer + PART : 0, length, access},
    };
    unsigned before = mw->rkey;
    CHECK(ibv_bind_mw(owner, mw, &to) == 0 && mw->rkey == ibv_inc_rkey(before));
    struct ibv_wc wc = next_completion(recv_cq);
    CHECK(wc.status == status && wc.wr_id == 9 && (status || wc.opcode == IBV_WC_BIND_MW));
}

static void type_1(void) {
    connect_pair(IBV_QPT_RC);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mw && mw->pd == pd && mw->context == context && mw->type == IBV_MW_TYPE_1);
    REFUSED(ibv_dealloc_pd(pd), EBUSY);
    refused(IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)buffer + PART);
    bind_type_1(mw, LENGTH, REMOTE, IBV_WC_SUCCESS);
    unsigned first = mw->rkey;
    write_through(first, (uintptr_t)buffer + PART);
    write_through(first, (uintptr_t)buffer + PART + LENGTH - 8);
    reach(IBV_WR_RDMA_READ, first, (uintptr_t)buffer + PART, IBV_WC_SUCCESS);
    reach(IBV_WR_ATOMIC_FETCH_AND_ADD, first, (uintptr_t)buffer + PART, IBV_WC_SUCCESS);
    // Other queue pairs of the domain can use it, too.
    destroy_pair(), connect_pair(IBV_QPT_RC);
    write_through(first, (uintptr_t)buffer + PART);
    refused(IBV_WR_RDMA_WRITE, first, (uintptr_t)buffer + PART - 1);
    refused(IBV_WR_RDMA_READ, first, (uintptr_t)buffer + PART + LENGTH - 7);
    // A new bind replaces the old one.
    bind_type_1(mw, LENGTH, IBV_ACCESS_REMOTE_READ, IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_READ, mw->rkey, (uintptr_t)buffer + PART, IBV_WC_SUCCESS);
    refused(IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)buffer + PART);
    refused(IBV_WR_RDMA_WRITE, first, (uintptr_t)buffer + PART);
    REFUSED(ibv_dereg_mr(region), EBUSY);
    CHECK(ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, NULL, NULL, 0, ALL_ACCESS) == IBV_REREG_MR_ERR_CMD && errno == EBUSY);
    // An empty bind invalidates it.
    bind_type_1(mw, 0, 0, IBV_WC_SUCCESS);
    refused(IBV_WR_RDMA_READ, mw->rkey, (uintptr_t)buffer + PART);
    bind_type_1(mw, LENGTH, IBV_ACCESS_ZERO_BASED | IBV_ACCESS_REMOTE_READ, IBV_WC_MW_BIND_ERR);
    destroy_pair(), connect_pair(IBV_QPT_RC);
    struct ibv_send_wr wr = binding(mw, mw->rkey, region, 0), *bad;
    REFUSED(ibv_post_send(owner, &wr, &bad), EINVAL);
    CHECK(ibv_dealloc_mw(mw) == 0);
    destroy_pair();
}

static void type_2(void) {
    connect_pair(IBV_QPT_RC);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    CHECK(mw && mw->type == IBV_MW_TYPE_2);
    REFUSED(ibv_bind_mw(owner, mw, &(struct ibv_mw_bind){0}), EINVAL);
    unsigned key = ibv_inc_rkey(mw->rkey);
    bind(mw, key, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE);
    write_through(key, (uintptr_t)buffer + PART);
    // It serves only this queue pair, and a window is no local memory.
    struct ibv_qp *others[] = {client, owner};
    connect_pair(IBV_QPT_RC);
    refused(IBV_WR_RDMA_WRITE, key, (uintptr_t)buffer + PART);
    struct ibv_sge sge = {(uintptr_t)buffer + PART, 8, key};
    carry_out(owner, (struct ibv_send_wr){.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND}, IBV_WC_LOC_PROT_ERR);
    destroy_pair();
    client = others[0], owner = others[1];
    write_through(key, (uintptr_t)buffer + PART + 8);
    // A local invalidate, after which it can be bound again.
    struct ibv_send_wr invalidate = {.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key};
    CHECK(carry_out(owner, invalidate, IBV_WC_SUCCESS).opcode == IBV_WC_LOCAL_INV);
    refused(IBV_WR_RDMA_WRITE, key, (uintptr_t)buffer + PART);
    bind(mw, ibv_inc_rkey(key), IBV_ACCESS_REMOTE_READ);
    key = ibv_inc_rkey(key);
    reach(IBV_WR_RDMA_READ, key, (uintptr_t)buffer + PART, IBV_WC_SUCCESS);
    refused(IBV_WR_RDMA_WRITE, key, (uintptr_t)buffer + PART);
    // Destroying its queue pair invalidated it.
    carry_out(owner, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = key}, IBV_WC_LOC_QP_OP_ERR);
    destroy_pair(), connect_pair(IBV_QPT_RC);
    // Deallocating it does the same.
    bind(mw, key, REMOTE);
    write_through(key, (uintptr_t)buffer + PART);
    REFUSED(ibv_dereg_mr(region), EBUSY);
    CHECK(ibv_dealloc_mw(mw) == 0);
    refused(IBV_WR_RDMA_WRITE, key, (uintptr_t)buffer + PART);
    destroy_pair();
}

// The client sends, and invalidates a key of the owner.
static void send_invalidate(unsigned key, enum ibv_wc_status sent, enum ibv_wc_status received) {
    post_recv(owner, 5, 1024, 64);
    struct ibv_sge sge = {(uintptr_t)buffer + 128, 8, region->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND_WITH_INV, .invalidate_rkey = key};
    carry_out(client, wr, sent);
    struct ibv_wc wc = next_completion(recv_cq);
    CHECK(wc.status == received && wc.wr_id == 5);
    if (!received)
        CHECK(wc.opcode == IBV_WC_RECV && wc.byte_len == 8 && wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == key);
}

static void remote_invalidation(void) {
    connect_pair(IBV_QPT_RC);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2), *first = ibv_alloc_mw(pd, IBV_MW_TYPE_1);
    CHECK(mw && first);
    for (int round = 0; round < 300; round++) { // more than there are keys
        unsigned key = (mw->rkey & ~0xffu) | (round & 0xff);
        bind(mw, key, REMOTE);
        write_through(key, (uintptr_t)buffer + PART);
        send_invalidate(key, IBV_WC_SUCCESS, IBV_WC_SUCCESS);
    }
    bind(mw, mw->rkey, REMOTE);
    send_invalidate(mw->rkey, IBV_WC_SUCCESS, IBV_WC_SUCCESS);
    refused(IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)buffer + PART);
    send_invalidate(mw->rkey, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    destroy_pair(), connect_pair(IBV_QPT_RC);
    // Keys of regions and of type 1 windows cannot be invalidated.
    send_invalidate(region->rkey, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    destroy_pair(), connect_pair(IBV_QPT_RC);
    bind_type_1(first, LENGTH, REMOTE, IBV_WC_SUCCESS);
    send_invalidate(first->rkey, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR);
    destroy_pair(), connect_pair(IBV_QPT_RC);
    write_through(first->rkey, (uintptr_t)buffer + PART);
    carry_out(owner, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = first->rkey}, IBV_WC_LOC_QP_OP_ERR);
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(first) == 0);
    destroy_pair();
}

static void zero_based(void) {
    connect_pair(IBV_QPT_RC);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    bind(mw, mw->rkey, REMOTE | IBV_ACCESS_ZERO_BASED);
    write_through(mw->rkey, 0);
    write_through(mw->rkey, LENGTH - 8);
    reach(IBV_WR_ATOMIC_FETCH_AND_ADD, mw->rkey, 16, IBV_WC_SUCCESS);
    refused(IBV_WR_RDMA_WRITE, mw->rkey, LENGTH - 7);
    CHECK(ibv_dealloc_mw(mw) == 0);
    destroy_pair();
}

static void refused_binds(void) {
    connect_pair(IBV_QPT_RC);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    struct ibv_pd *other = ibv_alloc_pd(context);
    struct ibv_mw *foreign = ibv_alloc_mw(other, IBV_MW_TYPE_2);
    struct ibv_mr *readable = ibv_reg_mr(pd, buffer, SIZE, IBV_ACCESS_MW_BIND);
    struct ibv_mr *elsewhere = ibv_reg_mr(other, buffer, SIZE, ALL_ACCESS | IBV_ACCESS_MW_BIND);
    CHECK(readable && elsewhere && foreign);
    unsigned key = mw->rkey;
    refused_bind(binding(mw, key, mr, IBV_ACCESS_REMOTE_READ)); // without IBV_ACCESS_MW_BIND
    refused_bind(binding(mw, key, readable, IBV_ACCESS_REMOTE_WRITE));
    refused_bind(binding(mw, key, readable, IBV_ACCESS_REMOTE_ATOMIC));
    refused_bind(binding(mw, key, elsewhere, IBV_ACCESS_REMOTE_READ));
    refused_bind(binding(foreign, foreign->rkey, region, IBV_ACCESS_REMOTE_READ));
    refused_bind(binding(mw, key ^ 1 << 8, region, IBV_ACCESS_REMOTE_READ));
    struct ibv_send_wr wr = binding(mw, key, region, IBV_ACCESS_REMOTE_READ), *bad;
    wr.bind_mw.bind_info.addr = (uintptr_t)buffer + SIZE - LENGTH + 1;
    refused_bind(wr);
    wr.bind_mw.bind_info.length = 0;
    refused_bind(wr);
    // What a region does not give to peers, a window on it may.
    CHECK(carry_out(owner, binding(mw, key, readable, IBV_ACCESS_REMOTE_READ), IBV_WC_SUCCESS).opcode == IBV_WC_BIND_MW);
    reach(IBV_WR_RDMA_READ, key, (uintptr_t)buffer + PART, IBV_WC_SUCCESS);
    carry_out(owner, binding(mw, key, region, IBV_ACCESS_REMOTE_READ), IBV_WC_MW_BIND_ERR); // it is bound
    destroy_pair(), connect_pair(IBV_QPT_RC);
    wr.bind_mw.bind_info.mr = NULL, wr.bind_mw.bind_info.length = 1;
    REFUSED(ibv_post_send(owner, &wr, &bad), EINVAL);
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(foreign) == 0);
    CHECK(ibv_dereg_mr(readable) == 0 && ibv_dereg_mr(elsewhere) == 0 && ibv_dealloc_pd(other) == 0);
    destroy_pair();
}

// Requests behind others complete in order, also if those are unsignaled.
static void order(void) {
    connect_pair(IBV_QPT_RC);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    for (int round = 0; round < 20; round++) {
        post_recv(client, round, 2048, 64);
        struct ibv_sge sge = {(uintptr_t)buffer + 128, 16384, region->lkey};
        struct ibv_send_wr write = {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE}, *bad;
        write.wr.rdma.remote_addr = (uintptr_t)buffer + SIZE - 16384, write.wr.rdma.rkey = region->rkey;
        struct ibv_send_wr to = binding(mw, mw->rkey, region, REMOTE);
        struct ibv_sge small = {(uintptr_t)buffer, 4, region->lkey};
        struct ibv_send_wr send = {.wr_id = 3, .sg_list = &small, .num_sge = 1, .opcode = IBV_WR_SEND};
        struct ibv_send_wr undo = {.wr_id = 4, .opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey};
        to.wr_id = 2, write.next = &to, to.next = &send, send.next = &undo;
        to.send_flags = send.send_flags = undo.send_flags = IBV_SEND_SIGNALED;
        CHECK(ibv_post_send(owner, &write, &bad) == 0);
        for (unsigned long id = 2; id <= 4; id++) {
            struct ibv_wc wc = next_completion(recv_cq);
            CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == id);
        }
        CHECK(next_completion(cq).wr_id == (unsigned long)round);
    }
    CHECK(ibv_dealloc_mw(mw) == 0);
    destroy_pair();
}

static void batches(void) {
    struct ibv_qp_init_attr_ex init = {
        .send_cq = recv_cq, .recv_cq = recv_cq, .qp_type = IBV_QPT_RC, .pd = pd,
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1},
    };
    owner = ibv_create_qp_ex(context, &init);
    CHECK(owner);
    client = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(client), to_init(owner);
    connect_qp(client, owner->qp_num), connect_qp(owner, client->qp_num);
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(owner);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2), *theirs = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    unsigned key = theirs->rkey;
    carry_out(client, binding(theirs, key, region, REMOTE), IBV_WC_SUCCESS);
    post_recv(client, 7, 1024, 8);
    struct ibv_mw_bind_info info = {region, (uintptr_t)buffer + PART, LENGTH, REMOTE};
    ibv_wr_start(qp);
    qp->wr_flags = IBV_SEND_SIGNALED;
    qp->wr_id = 1, ibv_wr_bind_mw(qp, mw, mw->rkey, &info);
    qp->wr_id = 2, ibv_wr_send_inv(qp, key);
    ibv_wr_set_sge(qp, region->lkey, (uintptr_t)buffer, 8);
    qp->wr_id = 3, ibv_wr_local_inv(qp, mw->rkey);
    CHECK(ibv_wr_complete(qp) == 0);
    enum ibv_wc_opcode opcodes[] = {IBV_WC_BIND_MW, IBV_WC_SEND, IBV_WC_LOCAL_INV};
    for (unsigned long id = 1; id <= 3; id++) {
        struct ibv_wc wc = next_completion(recv_cq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == id && wc.opcode == opcodes[id - 1]);
    }
    struct ibv_wc wc = next_completion(cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wc_flags == IBV_WC_WITH_INV && wc.invalidated_rkey == key);
    CHECK(ibv_dealloc_mw(mw) == 0 && ibv_dealloc_mw(theirs) == 0);
    destroy_pair();
}

static void unreliable(void) {
    connect_pair(IBV_QPT_UC);
    struct ibv_mw *mw = ibv_alloc_mw(pd, IBV_MW_TYPE_2);
    bind(mw, mw->rkey, IBV_ACCESS_REMOTE_WRITE);
    // A WRITE to the window, and one beside it, which is dropped.
    memset(buffer + 128, 'u', 8);
    memset(buffer + PART, 0, 2 * LENGTH);
    reach(IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)buffer + PART + LENGTH, IBV_WC_SUCCESS);
    reach(IBV_WR_RDMA_WRITE, mw->rkey, (uintptr_t)buffer + PART, IBV_WC_SUCCESS);
    time_t begin = time(NULL);
    while (__atomic_load_n(buffer + PART, __ATOMIC_ACQUIRE) != 'u') {
        CHECK(ibv_poll_cq(recv_cq, 1, &(struct ibv_wc){0}) == 0);
        CHECK(time(NULL) - begin < 60);
    }
    CHECK(buffer[PART + LENGTH] == 0);
    carry_out(owner, (struct ibv_send_wr){.opcode = IBV_WR_LOCAL_INV, .invalidate_rkey = mw->rkey}, IBV_WC_SUCCESS);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND_WITH_INV}, *bad;
    REFUSED(ibv_post_send(client, &wr, &bad), EINVAL);
    destroy_pair();
    struct ibv_qp *ud = make_qp(IBV_QPT_UD, cq, NULL);
    to_init(ud), connect_qp(ud, 0);
    wr = binding(mw, mw->rkey, region, 0);
    CHECK(ibv_post_send(ud, &wr, &bad) == EINVAL);
    CHECK(ibv_destroy_qp(ud) == 0 && ibv_dealloc_mw(mw) == 0);
}

int main(void) {
    open_first();
    cq = ibv_create_cq(context, 100, NULL, NULL, 0), recv_cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    region = ibv_reg_mr(pd, buffer, SIZE, ALL_ACCESS | IBV_ACCESS_MW_BIND);
    CHECK(cq && recv_cq && region);
    attributes();
    type_1();
    type_2();
    remote_invalidation();
    zero_based();
    refused_binds();
    order();
    batches();
    unreliable();
    CHECK(ibv_dereg_mr(region) == 0);
    CHECK(ibv_destroy_cq(cq) == 0 && ibv_destroy_cq(recv_cq) == 0);
    close_all();
    return 0;
}
