"""The content and settings that a run of training is bound to, the record of both, and the model card that is made from
it.
"""
