// What the C programs of the tests share: checks, and a pair of connected queue pairs.
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

// The call returns the errno, and sets it.
#define REFUSED(call, number) do { errno = 0; int got = (call); CHECK(got == (number)); } while (0)
// The call returns NULL and sets errno.
#define NULLED(call, number) do { errno = 0; CHECK((call) == NULL); CHECK(errno == (number)); } while (0)
// The call returns -1 and sets errno.
#define FAILED(call, number) do { errno = 0; CHECK((call) == -1); CHECK(errno == (number)); } while (0)

#define ALL_ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define SIZE 65536

static struct ibv_context *context;
static struct ibv_pd *pd;
static char *buffer;
static struct ibv_mr *mr;

// Cancels a thread that waits in a call.
static inline void cancel(void *(*call)(void *), void *argument) {
    pthread_t thread;
    void *result;
    CHECK(pthread_create(&thread, NULL, call, argument) == 0);
    usleep(20000);
    CHECK(pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0 && result == PTHREAD_CANCELED);
}

static inline void open_first(void) {
    int count = 0;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count >= 1 && list[count] == NULL);
    context = ibv_open_device(list[0]);
    CHECK(context && context->device == list[0]);
    ibv_free_device_list(list);
    pd = ibv_alloc_pd(context);
    CHECK(pd && pd->context == context);
    buffer = aligned_alloc(4096, SIZE);
    memset(buffer, 0, SIZE);
    mr = ibv_reg_mr(pd, buffer, SIZE, ALL_ACCESS);
    CHECK(mr && mr->addr == buffer && mr->length == SIZE && mr->pd == pd);
}

static inline void close_all(void) {
    CHECK(ibv_dereg_mr(mr) == 0);
    CHECK(ibv_dealloc_pd(pd) == 0);
    CHECK(ibv_close_device(context) == 0);
    free(buffer);
}

static inline struct ibv_qp *make_qp(enum ibv_qp_type type, struct ibv_cq *cq, struct ibv_srq *srq) {
    struct ibv_qp_init_attr init = {
        .send_cq = cq, .recv_cq = cq, .srq = srq, .qp_type = type,
        .cap = {.max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 2, .max_recv_sge = 2, .max_inline_data = 64},
    };
    struct ibv_qp *qp = ibv_create_qp(pd, &init);
    CHECK(qp && qp->qp_num > 1 && qp->state == IBV_QPS_RESET && init.cap.max_send_wr >= 16);
    return qp;
}

static inline void to_init(struct ibv_qp *qp) {
    struct ibv_qp_attr attr = {.qp_state = IBV_QPS_INIT, .port_num = 1, .qp_access_flags = ALL_ACCESS, .qkey = 0x11};
    int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    CHECK(ibv_modify_qp(qp, &attr, mask | (qp->qp_type == IBV_QPT_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS)) == 0);
}

#define RTR_MASK (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | \
    IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)
#define RTS_MASK (IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | \
    IBV_QP_MAX_QP_RD_ATOMIC)

static inline struct ibv_ah_attr address_of_port(void) {
    struct ibv_ah_attr ah = {.is_global = 1, .port_num = 1, .grh = {.hop_limit = 1}};
    CHECK(ibv_query_gid(context, 1, 0, &ah.grh.dgid) == 0);
    return ah;
}

static inline struct ibv_qp_attr rtr_attr(unsigned peer) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer, .rq_psn = 7,
        .max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = address_of_port(),
    };
    return attr;
}

static inline struct ibv_qp_attr rts_attr(void) {
    struct ibv_qp_attr attr = {
        .qp_state = IBV_QPS_RTS, .sq_psn = 7, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
    };
    return attr;
}

// Moves a queue pair in INIT to RTS, connected with queue pair `peer` of this port.
static inline void connect_qp(struct ibv_qp *qp, unsigned peer) {
    struct ibv_qp_attr rtr = rtr_attr(peer), rts = rts_attr();
    int is_rc = qp->qp_type == IBV_QPT_RC, is_ud = qp->qp_type == IBV_QPT_UD;
    int uc = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    CHECK(ibv_modify_qp(qp, &rtr, is_rc ? RTR_MASK : is_ud ? IBV_QP_STATE : uc) == 0);
    CHECK(qp->state == IBV_QPS_RTR);
    CHECK(ibv_modify_qp(qp, &rts, is_rc ? RTS_MASK : IBV_QP_STATE | IBV_QP_SQ_PSN) == 0);
    CHECK(qp->state == IBV_QPS_RTS);
}

// Polls for a completion, for at most a minute.
static inline struct ibv_wc next_completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    time_t begin = time(NULL);
    for (;;) {
        int found = ibv_poll_cq(cq, 1, &wc);
        CHECK(found >= 0);
        if (found == 1)
            return wc;
        CHECK(time(NULL) - begin < 60);
    }
}

static inline void post_recv(struct ibv_qp *qp, unsigned long id, size_t offset, unsigned length) {
    struct ibv_sge sge = {(uintptr_t)buffer + offset, length, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_recv(qp, &wr, &bad) == 0);
}
