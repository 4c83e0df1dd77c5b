"""Two machines on one: network namespaces with a link between them that has a latency and a rate.

delayed.py  the link, as a program that delays packets
spaces.py   namespaces, addresses, commands in them
probe.py    measurement of the link
exchange.py times of messages between two ranks
"""
