"""``haulage demo``: sample data, store, worker and page in one terminal.

command.py tells the story; folder.py is where it keeps everything; flights.py and shop.py make the data, each
with a configuration beside it that is also an example to read.
"""
