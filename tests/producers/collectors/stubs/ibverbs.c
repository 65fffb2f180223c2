/* A library with libibverbs' interface and no device. */
#include <errno.h>

#include "verbs.h"

int ibv_modify_qp(struct ibv_qp *pair, struct ibv_qp_attr *attributes, int mask)
{
    (void)pair;
    return mask & IBV_QP_STATE && attributes->qp_state > 6 ? EINVAL : 0;
}

int ibv_destroy_qp(struct ibv_qp *pair)
{
    pair->qp_num = 0;
    return 0;
}
