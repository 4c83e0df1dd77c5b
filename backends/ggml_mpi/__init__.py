"""Other processes as devices, over MPI: mpi0 is this one's CPU, mpi1 and so on those of others.

Rank 0 runs the program; what it has planned for a device of another rank goes there once, as an
order, and is run there as often as another order says so. Orders are not waited for: only who reads
memory waits for what was ordered before. Bytes go straight from rank to rank.

    world.py     the ranks, and messages between them
    orders.py    what a rank can be told to do
    script.py    what it does in a run of a graph, kept there
    plan.py      such runs, as rank 0 starts them
    times.py     how long that takes, where somebody wants to know
    wire.py      tensors and steps as bytes
    device.py    a device of another rank, as rank 0 sees it
    exchange.py  the sum of what several ranks have
    pieces.py    such sums of a prompt, which leave while they are made
    files.py     model files that a rank reads itself; kept.py: parts that it was sent
    worker.py    what the other ranks run
    watch.py     whether all are alive, by the connections of lines.py
    keeper.py    a process around each rank, which tells how it ended
"""
