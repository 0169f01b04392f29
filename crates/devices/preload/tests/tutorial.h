/* What the tutorial's client, listener and agent share: the message, and a check of each call. */

#include <errno.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Length of a message. */
#define LENGTH 512
/* Messages that a client sends, each of which comes back with all bits inverted. */
#define ROUNDS 20

/* Prints the call that failed, and ends the program. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, strerror(errno));                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Returns the addresses of a service. */
static inline struct rdma_addrinfo *resolve(const char *host, const char *port, int flags)
{
    struct rdma_addrinfo hints = {.ai_flags = flags, .ai_port_space = RDMA_PS_TCP}, *found;
    CHECK(rdma_getaddrinfo((char *)host, (char *)port, &hints, &found) == 0);
    return found;
}

/* Queue pairs with room for one message in each direction, and a completion for each send. */
static inline struct ibv_qp_init_attr queues(void)
{
    struct ibv_qp_init_attr attr = {
        .cap = {.max_send_wr = 2, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1},
        .qp_type = IBV_QPT_RC,
        .sq_sig_all = 1,
    };
    return attr;
}

/* Waits for the completion of a send. */
static inline void sent(struct rdma_cm_id *id)
{
    struct ibv_wc wc;
    CHECK(rdma_get_send_comp(id, &wc) == 1);
    CHECK(wc.status == IBV_WC_SUCCESS);
}
