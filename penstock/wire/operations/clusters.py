"""Operations about the cluster of servers that a store belongs to."""

from penstock.wire.operations._operation import Operation, declare


@declare("cluster_status", "read", "store", repeats=True)
class ClusterStatus(Operation):
    """List the servers of the store, and the plog servers of its clusters."""
