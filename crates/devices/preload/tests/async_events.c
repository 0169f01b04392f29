// Asynchronous events of queue pairs and completion queues.
#include "verbs.h"

static struct ibv_cq *cq;

static int is_waiting(int timeout) {
    struct pollfd ready = {.fd = context->async_fd, .events = POLLIN};
    return poll(&ready, 1, timeout);
}

// Waits for an event, at most a minute; acknowledges and returns it.
static struct ibv_async_event next_event(void) {
    struct ibv_async_event event;
    CHECK(is_waiting(60000) == 1);
    CHECK(ibv_get_async_event(context, &event) == 0);
    ibv_ack_async_event(&event);
    return event;
}

static void expect_of_qp(enum ibv_event_type type, struct ibv_qp *qp) {
    struct ibv_async_event event = next_event();
    if (event.event_type != type)
        fprintf(stderr, "event %s instead of %s\n", ibv_event_type_str(event.event_type), ibv_event_type_str(type));
    CHECK(event.event_type == type && event.element.qp == qp);
}

static void connected(struct ibv_qp **a, struct ibv_qp **b) {
    *a = make_qp(IBV_QPT_RC, cq, NULL), *b = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(*a), to_init(*b);
    connect_qp(*a, (*b)->qp_num), connect_qp(*b, (*a)->qp_num);
}

static void post(struct ibv_qp *qp, enum ibv_wr_opcode opcode, uint64_t to, uint32_t rkey, unsigned length) {
    struct ibv_sge sge = {(uintptr_t)buffer, length, mr->lkey};
    struct ibv_send_wr wr = {.sg_list = &sge, .num_sge = 1, .opcode = opcode, .send_flags = IBV_SEND_SIGNALED}, *bad;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD)
        wr.wr.atomic.remote_addr = to, wr.wr.atomic.rkey = rkey;
    else
        wr.wr.rdma.remote_addr = to, wr.wr.rdma.rkey = rkey;
    CHECK(ibv_post_send(qp, &wr, &bad) == 0);
}

static void destroy(struct ibv_qp *a, struct ibv_qp *b) {
    CHECK(ibv_destroy_qp(a) == 0 && ibv_destroy_qp(b) == 0);
}

// The responder of a refused request learns why it has failed.
static void test_refused_requests(void) {
    struct ibv_qp *a, *b;
    connected(&a, &b);
    post(a, IBV_WR_RDMA_WRITE, (uintptr_t)buffer, mr->rkey ^ 1 << 20, 8);
    CHECK(next_completion(cq).status == IBV_WC_REM_ACCESS_ERR);
    expect_of_qp(IBV_EVENT_QP_ACCESS_ERR, b);
    destroy(a, b);
    connected(&a, &b);
    post(a, IBV_WR_ATOMIC_FETCH_AND_ADD, (uintptr_t)buffer + 3, mr->rkey, 8);
    CHECK(next_completion(cq).status == IBV_WC_REM_INV_REQ_ERR);
    expect_of_qp(IBV_EVENT_QP_REQ_ERR, b);
    destroy(a, b);
    CHECK(is_waiting(0) == 0);
}

// A completion reports a receive that fails, so there is no event.
static void test_failed_receive(void) {
    struct ibv_qp *a, *b;
    connected(&a, &b);
    post_recv(b, 1, 0, 4);
    post(a, IBV_WR_SEND, 0, 0, 8);
    struct ibv_wc first = next_completion(cq), second = next_completion(cq);
    CHECK(first.status != IBV_WC_SUCCESS && second.status != IBV_WC_SUCCESS);
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    time_t begin = time(NULL);
    do {
        CHECK(ibv_query_qp(b, &attr, IBV_QP_STATE, &init) == 0 && time(NULL) - begin < 60);
    } while (attr.qp_state != IBV_QPS_ERR);
    CHECK(is_waiting(0) == 0);
    destroy(a, b);
}

// The descriptor is not readable after the object of its only event was destroyed.
static void test_destroyed(void) {
    struct ibv_qp *a, *b;
    connected(&a, &b);
    post(a, IBV_WR_RDMA_WRITE, (uintptr_t)buffer, mr->rkey ^ 1 << 20, 8);
    CHECK(is_waiting(60000) == 1);
    CHECK(next_completion(cq).status == IBV_WC_REM_ACCESS_ERR);
    destroy(a, b);
    CHECK(is_waiting(0) == 0);
}

static void test_established(void) {
    struct ibv_qp *a = make_qp(IBV_QPT_RC, cq, NULL), *b = make_qp(IBV_QPT_RC, cq, NULL);
    to_init(a), to_init(b);
    struct ibv_qp_attr rtr = rtr_attr(a->qp_num), rts = rts_attr();
    CHECK(ibv_modify_qp(b, &rtr, RTR_MASK) == 0);
    connect_qp(a, b->qp_num);
    post(a, IBV_WR_RDMA_WRITE, (uintptr_t)buffer + 64, mr->rkey, 8);
    CHECK(next_completion(cq).status == IBV_WC_SUCCESS);
    expect_of_qp(IBV_EVENT_COMM_EST, b);
    CHECK(ibv_modify_qp(b, &rts, RTS_MASK) == 0);
    post(a, IBV_WR_RDMA_WRITE, (uintptr_t)buffer + 64, mr->rkey, 8);
    CHECK(next_completion(cq).status == IBV_WC_SUCCESS);
    destroy(a, b);
    CHECK(is_waiting(0) == 0);
}

static void test_overrun(void) {
    struct ibv_cq *small = ibv_create_cq(context, 1, NULL, NULL, 0), *all = cq;
    struct ibv_qp *a, *b;
    cq = small;
    connected(&a, &b);
    for (int i = 0; i <= small->cqe; i++)
        post(a, IBV_WR_RDMA_WRITE, (uintptr_t)buffer + 64, mr->rkey, 8);
    // When the last request has ended, so have the others. Polling the other queue processes what has arrived.
    volatile char *arrived = buffer;
    arrived[0] = 0, arrived[128] = 1;
    post(a, IBV_WR_RDMA_READ, (uintptr_t)buffer + 128, mr->rkey, 8);
    struct ibv_wc wc;
    time_t begin = time(NULL);
    while (arrived[0] == 0)
        CHECK(ibv_poll_cq(all, 1, &wc) == 0 && time(NULL) - begin < 60);
    CHECK(ibv_poll_cq(all, 1, &wc) == 0 && is_waiting(0) == 0);
    CHECK(ibv_poll_cq(small, 1, &wc) < 0);
    struct ibv_async_event event = next_event();
    CHECK(event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == small);
    CHECK(ibv_poll_cq(small, 1, &wc) < 0 && is_waiting(0) == 0);
    destroy(a, b);
    CHECK(ibv_destroy_cq(small) == 0);
    cq = all;
}

int main(void) {
    open_first();
    cq = ibv_create_cq(context, 100, NULL, NULL, 0);
    CHECK(cq);
    test_refused_requests();
    test_failed_receive();
    test_destroyed();
    test_established();
    test_overrun();
    CHECK(ibv_destroy_cq(cq) == 0);
    close_all();
    return 0;
}
