/* A listener that starts an agent, a thread of its own, for each connection. Arguments: host, port, number of clients. */

#include "tutorial.h"

#include <pthread.h>

/* Serves one client: inverts the bits of each message, and sends it back. */
static void *agent(void *connection)
{
    struct rdma_cm_id *id = connection;
    uint8_t *message = malloc(LENGTH);
    struct ibv_mr *mr = rdma_reg_msgs(id, message, LENGTH);
    CHECK(mr);
    CHECK(rdma_post_recv(id, NULL, message, LENGTH, mr) == 0);
    CHECK(rdma_accept(id, NULL) == 0);

    for (int round = 0; round < ROUNDS; round++) {
        struct ibv_wc wc;
        CHECK(rdma_get_recv_comp(id, &wc) == 1);
        CHECK(wc.status == IBV_WC_SUCCESS && wc.byte_len == LENGTH);
        /* The next message may arrive as soon as the answer has been sent: it needs its receive before. */
        uint8_t answer[LENGTH];
        for (int i = 0; i < LENGTH; i++)
            answer[i] = (uint8_t)~message[i];
        struct ibv_mr *answer_mr = rdma_reg_msgs(id, answer, LENGTH);
        CHECK(answer_mr);
        if (round + 1 < ROUNDS)
            CHECK(rdma_post_recv(id, NULL, message, LENGTH, mr) == 0);
        CHECK(rdma_post_send(id, NULL, answer, LENGTH, answer_mr, 0) == 0);
        sent(id);
        CHECK(rdma_dereg_mr(answer_mr) == 0);
    }

    CHECK(rdma_disconnect(id) == 0);
    CHECK(rdma_dereg_mr(mr) == 0);
    rdma_destroy_ep(id);
    free(message);
    return NULL;
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    int clients = atoi(argv[3]);
    struct rdma_addrinfo *service = resolve(argv[1], argv[2], RAI_PASSIVE);
    struct ibv_qp_init_attr attr = queues();
    struct rdma_cm_id *listener;
    CHECK(rdma_create_ep(&listener, service, NULL, &attr) == 0);
    rdma_freeaddrinfo(service);
    CHECK(rdma_listen(listener, clients) == 0);

    pthread_t *agents = calloc(clients, sizeof *agents);
    for (int n = 0; n < clients; n++) {
        struct rdma_cm_id *id;
        CHECK(rdma_get_request(listener, &id) == 0);
        CHECK(pthread_create(&agents[n], NULL, agent, id) == 0);
    }
    for (int n = 0; n < clients; n++)
        CHECK(pthread_join(agents[n], NULL) == 0);
    free(agents);
    rdma_destroy_ep(listener);
    printf("served %d clients\n", clients);
    return 0;
}
