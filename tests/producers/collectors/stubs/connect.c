/* A program that is linked to libibverbs itself, as NCCL may be: it connects a queue pair and destroys it. */
#include <string.h>

#include "verbs.h"

int ibv_modify_qp(struct ibv_qp *, struct ibv_qp_attr *, int);
int ibv_destroy_qp(struct ibv_qp *);

int main(void)
{
    struct ibv_device device = {.name = "mlx5_9"};
    struct ibv_context context = {.device = &device};
    struct ibv_qp pair = {.context = &context, .qp_num = 77};
    struct ibv_qp_attr to = {.qp_state = IBV_QPS_RTR, .dest_qp_num = 78};
    if (ibv_modify_qp(&pair, &to, IBV_QP_STATE | IBV_QP_DEST_QPN))
        return 1;
    to.qp_state = 7; /* none that there is */
    return ibv_modify_qp(&pair, &to, IBV_QP_STATE) == 0 || ibv_destroy_qp(&pair);
}
