"""The ways a session can be confined. Each backend turns a policy into a confined guest and nothing more."""
