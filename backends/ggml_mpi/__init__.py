"""Other processes as devices, over MPI: mpi0 is this process's CPU, mpi1 and so on other ranks'.

Rank 0 runs the program. It sends its plan for another rank's device once, as an order; another
order runs the plan, as often as needed. Orders are asynchronous: only readers of memory wait for
earlier orders. Bytes are sent directly from rank to rank.

    world.py     the ranks, and messages between them
    orders.py    orders that a rank can run
    script.py    the orders of a graph's run, stored in the rank
    plan.py      runs of a graph, started by rank 0
    times.py     times of these runs, on request
    wire.py      tensors and steps as bytes
    device.py    a device of another rank, as rank 0 sees it
    exchange.py  sums over parts on several ranks
    pieces.py    such sums of a prompt, sent while they are computed
    files.py     model files that a rank reads directly; kept.py: a cache of received parts
    worker.py    program of the other ranks
    watch.py     check that all ranks are alive, by the connections of lines.py
    keeper.py    a process around each rank, which reports how it ended
"""
