"""The files that the list creates are tests of the copy, not of this project."""

collect_ignore_glob = ["created/*"]
