"""Hugging Face's models: from a config alone to a model and to the inputs that their processors would make.

configs     configs of files and classes, with other attributes
models      the model of a config: by `architectures`, by the head it is trained with, or from its own module
processors  the library's own image processors and feature extractors, run on a blank image or a silent recording
features    how many tokens of a text stand for an image or a recording: as many as the model's tower gives
labels      what the head of a model is trained with
inputs      all of these together: candidates for a trial, the likeliest first
"""
