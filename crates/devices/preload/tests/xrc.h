// What programs with XRC share.
#include "verbs.h"

static struct ibv_cq *send_cq, *recv_cq;

static inline struct ibv_xrcd *open_xrcd(int fd, int oflags) {
    struct ibv_xrcd_init_attr attr = {
        .comp_mask = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS, .fd = fd, .oflags = oflags,
    };
    return ibv_open_xrcd(context, &attr);
}

static inline struct ibv_srq *make_srq(struct ibv_xrcd *xrcd, struct ibv_pd *domain, struct ibv_cq *cq, unsigned *number) {
    struct ibv_srq_init_attr_ex init = {
        .attr = {.max_wr = 8, .max_sge = 1}, .srq_type = IBV_SRQT_XRC, .pd = domain, .xrcd = xrcd, .cq = cq,
        .comp_mask = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ,
    };
    struct ibv_srq *srq = ibv_create_srq_ex(context, &init);
    CHECK(srq && ibv_get_srq_num(srq, number) == 0 && *number != 0 && *number < 1 << 24);
    return srq;
}

static inline void post_srq(struct ibv_srq *srq, unsigned long id, size_t offset, unsigned length) {
    struct ibv_sge sge = {(uintptr_t)buffer + offset, length, mr->lkey};
    struct ibv_recv_wr wr = {.wr_id = id, .sg_list = &sge, .num_sge = 1}, *bad;
    CHECK(ibv_post_srq_recv(srq, &wr, &bad) == 0);
}

static inline struct ibv_qp *make_recv_qp(struct ibv_xrcd *xrcd) {
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_RECV, .comp_mask = IBV_QP_INIT_ATTR_XRCD, .xrcd = xrcd,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    CHECK(qp && qp->qp_num > 1 && qp->qp_type == IBV_QPT_XRC_RECV);
    return qp;
}

static inline struct ibv_qp *make_send_qp(void) {
    struct ibv_qp_init_attr_ex init = {
        .qp_type = IBV_QPT_XRC_SEND, .send_cq = send_cq, .pd = pd,
        .cap = {.max_send_wr = 16, .max_send_sge = 1, .max_inline_data = 64},
        .comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
        .send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ,
    };
    struct ibv_qp *qp = ibv_create_qp_ex(context, &init);
    CHECK(qp && qp->qp_type == IBV_QPT_XRC_SEND);
    return qp;
}

// Moves both ends of a side to RTS: `from` is connected with the receive queue pair `to_peer` of the peer, and `to` with its
// send queue pair `from_peer`. Each has the attributes of its half of RC.
static inline void connect_halves(struct ibv_qp *from, unsigned to_peer, struct ibv_qp *to, unsigned from_peer) {
    struct ibv_qp_attr rtr = rtr_attr(from_peer), rts = rts_attr();
    CHECK(ibv_modify_qp(to, &rtr, RTR_MASK) == 0);
    CHECK(ibv_modify_qp(to, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_SQ_PSN) == 0);
    rtr.dest_qp_num = to_peer;
    CHECK(ibv_modify_qp(from, &rtr, RTR_MASK & ~(IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER)) == 0);
    CHECK(ibv_modify_qp(from, &rts, RTS_MASK) == 0);
}
