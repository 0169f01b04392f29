// XRC: domains, shared receive queues and queue pairs, all operations, and what is refused.
#include "xrc.h"

#define MESSAGE 3000

// Connects both ends with each other.
static void connect_ends(struct ibv_qp *from, struct ibv_qp *to) {
    to_init(from);
    to_init(to);
    connect_halves(from, to->qp_num, to, from->qp_num);
}

// Sends a message with its operands in `wr` to the queue `srqn`; returns the status.
static enum ibv_wc_status request(struct ibv_qp *qp, unsigned srqn, struct ibv_send_wr wr, size_t offset, unsigned length) {
    struct ibv_sge sge = {(uintptr_t)buffer + offset, length, mr->lkey};
    struct ibv_send_wr *bad;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags |= IBV_SEND_SIGNALED;
    wr.qp_type.xrc.remote_srqn = srqn;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
    return next_completion(send_cq).status;
}

#define REMOTE(place) .wr.rdma = {(uintptr_t)buffer + (place), mr->rkey}

static void test_operations(struct ibv_qp *from, struct ibv_qp *to, struct ibv_srq *srqs[2], unsigned numbers[2]) {
    for (int i = 0; i < 4; i++) {
        // In the opposite order of the posts.
        int which = (i + 1) % 2;
        post_srq(srqs[which], 10 + i, 0, MESSAGE);
        memset(buffer, 0, MESSAGE);
        memset(buffer + 8192, 'a' + i, MESSAGE);
        struct ibv_send_wr wr = {.opcode = i < 2 ? IBV_WR_SEND : IBV_WR_SEND_WITH_IMM, .imm_data = htobe32(5)};
        CHECK(request(from, numbers[which], wr, 8192, MESSAGE) == IBV_WC_SUCCESS);
        struct ibv_wc wc = next_completion(recv_cq);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 10ul + i && wc.byte_len == MESSAGE);
        CHECK(wc.qp_num == to->qp_num && wc.opcode == IBV_WC_RECV);
        CHECK(i < 2 || wc.imm_data == htobe32(5));
        CHECK(buffer[0] == 'a' + i && buffer[MESSAGE - 1] == 'a' + i);
    }
    struct ibv_send_wr write = {.opcode = IBV_WR_RDMA_WRITE, REMOTE(0)};
    memset(buffer + 8192, 'w', MESSAGE);
    CHECK(request(from, numbers[0], write, 8192, MESSAGE) == IBV_WC_SUCCESS && buffer[MESSAGE - 1] == 'w');
    post_srq(srqs[1], 20, 0, 0);
    write.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    write.imm_data = htobe32(6);
    CHECK(request(from, numbers[1], write, 8192, MESSAGE) == IBV_WC_SUCCESS);
    struct ibv_wc wc = next_completion(recv_cq);
    CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM && wc.imm_data == htobe32(6) && wc.wr_id == 20);
    struct ibv_send_wr read = {.opcode = IBV_WR_RDMA_READ, REMOTE(0)};
    memset(buffer + 8192, 0, MESSAGE);
    CHECK(request(from, numbers[0], read, 8192, MESSAGE) == IBV_WC_SUCCESS && buffer[8192 + MESSAGE - 1] == 'w');
    struct ibv_send_wr add = {
        .opcode = IBV_WR_ATOMIC_FETCH_AND_ADD,
        .wr.atomic = {.remote_addr = (uintptr_t)buffer, .rkey = mr->rkey, .compare_add = 4},
    };
    memset(buffer, 0, 8);
    CHECK(request(from, numbers[1], add, 8192, 8) == IBV_WC_SUCCESS && *(uint64_t *)buffer == 4);
    CHECK(*(uint64_t *)(buffer + 8192) == 0);
}

static void test_extended_posts(struct ibv_qp *from, struct ibv_srq *srq, unsigned number) {
    struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(from);
    post_srq(srq, 30, 0, 64);
    ibv_wr_start(qp);
    qp->wr_id = 31;
    qp->wr_flags = IBV_SEND_SIGNALED;
    ibv_wr_send(qp);
    ibv_wr_set_xrc_srqn(qp, number);
    ibv_wr_set_inline_data(qp, "extended", 9);
    CHECK(ibv_wr_complete(qp) == 0);
    struct ibv_wc wc = next_completion(send_cq);
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == 31);
    CHECK(next_completion(recv_cq).wr_id == 30 && strcmp(buffer, "extended") == 0);
}

// A request waits for a receive of the queue that it names.
static void test_not_ready(struct ibv_qp *from, struct ibv_srq *srq, unsigned number) {
    struct ibv_sge sge = {(uintptr_t)buffer + 8192, 8, mr->lkey};
    struct ibv_send_wr wr = {
        .wr_id = 40, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
        .qp_type.xrc.remote_srqn = number,
    }, *bad;
    struct ibv_wc wc;
    CHECK(ibv_post_send(from, &wr, &bad) == 0);
    for (int i = 0; i < 1000; i++)
        CHECK(ibv_poll_cq(send_cq, 1, &wc) == 0);
    post_srq(srq, 41, 0, 64);
    CHECK(next_completion(send_cq).status == IBV_WC_SUCCESS && next_completion(recv_cq).wr_id == 41);
}

// Each kind of failure ends a connection of its own.
static void test_failures(struct ibv_xrcd *xrcd, unsigned number) {
    struct ibv_pd *other = ibv_alloc_pd(context);
    unsigned foreign, elsewhere;
    struct ibv_xrcd *second = open_xrcd(-1, O_CREAT);
    struct ibv_srq *of_second = make_srq(second, pd, recv_cq, &elsewhere);
    struct ibv_srq *of_other_pd = make_srq(xrcd, other, recv_cq, &foreign);
    struct { unsigned srqn; enum ibv_wr_opcode opcode; enum ibv_wc_status status; enum ibv_event_type event; } cases[] = {
        {elsewhere, IBV_WR_SEND, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
        {elsewhere, IBV_WR_RDMA_WRITE, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
        {number ^ 0x40, IBV_WR_RDMA_READ, IBV_WC_REM_INV_REQ_ERR, IBV_EVENT_QP_REQ_ERR},
        // The memory is in another protection domain than the queue.
        {foreign, IBV_WR_RDMA_WRITE, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
        {foreign, IBV_WR_RDMA_READ, IBV_WC_REM_ACCESS_ERR, IBV_EVENT_QP_ACCESS_ERR},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct ibv_qp *from = make_send_qp(), *to = make_recv_qp(xrcd);
        connect_ends(from, to);
        struct ibv_send_wr wr = {.opcode = cases[i].opcode, REMOTE(0)};
        CHECK(request(from, cases[i].srqn, wr, 8192, 8) == cases[i].status);
        struct ibv_async_event event;
        do {
            CHECK(ibv_get_async_event(context, &event) == 0);
            ibv_ack_async_event(&event);
        } while (event.event_type == IBV_EVENT_COMM_EST);
        CHECK(event.event_type == cases[i].event && event.element.qp == to);
        CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
    }
    CHECK(ibv_destroy_srq(of_second) == 0 && ibv_destroy_srq(of_other_pd) == 0);
    CHECK(ibv_close_xrcd(second) == 0 && ibv_dealloc_pd(other) == 0);
}

// A queue that was destroyed takes no more messages, nor does a later one with its place.
static void test_destroyed_queue(struct ibv_xrcd *xrcd) {
    struct ibv_qp *from = make_send_qp(), *to = make_recv_qp(xrcd);
    unsigned number;
    struct ibv_srq *srq = make_srq(xrcd, pd, recv_cq, &number);
    connect_ends(from, to);
    post_srq(srq, 50, 0, 64);
    struct ibv_send_wr wr = {.opcode = IBV_WR_SEND};
    CHECK(request(from, number, wr, 8192, 8) == IBV_WC_SUCCESS && next_completion(recv_cq).wr_id == 50);
    CHECK(ibv_destroy_srq(srq) == 0);
    CHECK(request(from, number, wr, 8192, 8) == IBV_WC_REM_INV_REQ_ERR);
    CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
}

static void test_domains(void) {
    char name[] = "/tmp/adverb-xrcd-XXXXXX";
    int fd = mkstemp(name);
    CHECK(fd >= 0 && unlink(name) == 0);
    NULLED(ibv_open_xrcd(context, &(struct ibv_xrcd_init_attr){0}), EINVAL);
    NULLED(open_xrcd(fd, 0), EAGAIN);
    NULLED(open_xrcd(-2, O_CREAT), EBADF);
    struct ibv_xrcd *first = open_xrcd(fd, O_CREAT), *same = open_xrcd(fd, 0);
    CHECK(first && same && first->context == context);
    NULLED(open_xrcd(fd, O_CREAT | O_EXCL), EINVAL);
    // A queue pair of the domain, found by its number in the other object of the domain.
    struct ibv_qp *qp = make_recv_qp(first);
    struct ibv_qp_open_attr open = {
        .comp_mask = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE | IBV_QP_OPEN_ATTR_CONTEXT,
        .qp_num = qp->qp_num, .xrcd = same, .qp_context = &fd, .qp_type = IBV_QPT_XRC_RECV,
    };
    struct ibv_qp *again = ibv_open_qp(context, &open);
    CHECK(again && again != qp && again->qp_num == qp->qp_num && again->qp_context == &fd);
    to_init(qp);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    CHECK(ibv_query_qp(again, &attr, IBV_QP_STATE, &init) == 0);
    CHECK(attr.qp_state == IBV_QPS_INIT && attr.port_num == 1 && init.qp_type == IBV_QPT_XRC_RECV);
    open.qp_num ^= 1;
    NULLED(ibv_open_qp(context, &open), EINVAL);
    // A number that no process here has.
    open.qp_num = 0xfffff0;
    NULLED(ibv_open_qp(context, &open), EOPNOTSUPP);
    REFUSED(ibv_close_xrcd(first), EBUSY);
    CHECK(ibv_destroy_qp(qp) == 0 && ibv_close_xrcd(first) == 0);
    REFUSED(ibv_close_xrcd(same), EBUSY);
    CHECK(ibv_query_qp(again, &attr, IBV_QP_STATE, &init) == 0 && attr.qp_state == IBV_QPS_INIT);
    CHECK(ibv_destroy_qp(again) == 0 && ibv_close_xrcd(same) == 0);
    // It is closed now.
    NULLED(open_xrcd(fd, 0), EAGAIN);
    close(fd);
}

static void test_refusals(struct ibv_xrcd *xrcd, struct ibv_qp *from, struct ibv_qp *to) {
    struct ibv_recv_wr receive = {0}, *bad_receive;
    struct ibv_send_wr send = {.opcode = IBV_WR_SEND}, *bad_send;
    REFUSED(ibv_post_recv(from, &receive, &bad_receive), EINVAL);
    REFUSED(ibv_post_recv(to, &receive, &bad_receive), EINVAL);
    REFUSED(ibv_post_send(to, &send, &bad_send), EINVAL);
    NULLED(ibv_qp_to_qp_ex(to), EINVAL);
    struct ibv_qp_init_attr_ex init = {.qp_type = IBV_QPT_XRC_RECV};
    NULLED(ibv_create_qp_ex(context, &init), EINVAL);
    struct ibv_qp_init_attr plain = {.qp_type = IBV_QPT_XRC_RECV, .send_cq = send_cq, .recv_cq = recv_cq};
    NULLED(ibv_create_qp(pd, &plain), EINVAL);
    REFUSED(ibv_close_xrcd(xrcd), EBUSY);
    REFUSED(ibv_destroy_cq(recv_cq), EBUSY);
}

int main(void) {
    open_first();
    send_cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    recv_cq = ibv_create_cq(context, 32, NULL, NULL, 0);
    test_domains();
    struct ibv_xrcd *xrcd = open_xrcd(-1, O_CREAT);
    CHECK(xrcd);
    struct ibv_srq *srqs[2];
    unsigned numbers[2];
    for (int i = 0; i < 2; i++)
        srqs[i] = make_srq(xrcd, pd, recv_cq, &numbers[i]);
    CHECK(numbers[0] != numbers[1]);
    struct ibv_qp *from = make_send_qp(), *to = make_recv_qp(xrcd);
    connect_ends(from, to);
    test_operations(from, to, srqs, numbers);
    test_extended_posts(from, srqs[0], numbers[0]);
    test_not_ready(from, srqs[1], numbers[1]);
    test_refusals(xrcd, from, to);
    CHECK(ibv_destroy_qp(from) == 0 && ibv_destroy_qp(to) == 0);
    test_failures(xrcd, numbers[0]);
    test_destroyed_queue(xrcd);
    for (int i = 0; i < 2; i++)
        CHECK(ibv_destroy_srq(srqs[i]) == 0);
    CHECK(ibv_close_xrcd(xrcd) == 0);
    CHECK(ibv_destroy_cq(send_cq) == 0 && ibv_destroy_cq(recv_cq) == 0);
    close_all();
    return 0;
}
