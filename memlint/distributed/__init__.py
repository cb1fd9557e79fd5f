"""One rank of many: process groups, collectives that move nothing, objects between ranks, memory of communicators."""
