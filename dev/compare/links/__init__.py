"""Two machines on one: network namespaces with a link between them that has a latency and a rate.

delayed.py  the link, as a program that hands packets on when their time has come
spaces.py   namespaces, addresses, commands in them
probe.py    what the link really does
exchange.py what two ranks take that send each other bytes
"""
