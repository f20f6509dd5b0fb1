"""Tasks of type `agent`: a command or provider that is started until its marker says that it is done.

`model` and `form` hold the settings and how a suite writes them; `task` is the plan and the body of a job.
`restarts` decides whether to start again and `loop` does it; `slots` and `planner` decide who may start;
`command_agent` and `model_agent` are what is started, in a `workspace`; `bus` carries messages.
"""
