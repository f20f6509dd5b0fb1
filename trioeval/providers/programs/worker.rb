# A worker in Ruby: equivalent to worker.py, which describes its arguments, requests and answers.
#
# If its file argument is this file, it calls `judge` with the code of an assertion, the output and
# the context.

require 'json'

LARGEST_SHOWN = 200
FAILURES = [StandardError, ScriptError, NoMemoryError, SystemStackError].freeze

descriptor, lifeline, file, name, largest, memory = ARGV
ARGV.clear
own = Process.pid
if memory.to_i.positive?
  Process.setrlimit(Process::RLIMIT_DATA, memory.to_i * 1024 * 1024)
end
channel = IO.for_fd(descriptor.to_i, 'r+b')
channel.sync = true
channel.close_on_exec = true
held = IO.for_fd(lifeline.to_i, 'rb')
held.close_on_exec = true
$stdout.sync = true

# Nothing is written there: its end means that the process which started the worker was killed.
Thread.new do
  held.read(1)
  Process.kill(:KILL, -Process.getpgrp)
end

# An object with a method for each code that was requested.
class Judge
  def initialize
    @asked = {}
  end

  def judge(code, output, context)
    holder = @asked[code] ||= Object.new.tap do |made|
      body = code.include?("\n") ? code : "return #{code}"
      made.instance_eval("def main(output, context)\n#{body}\nend", '<the suite>')
    end
    holder.main(output, context)
  end
end

def trioeval_load(file, name)
  return Judge.new.method(name) if File.identical?(file, __FILE__)

  load file
  *path, last = name.split('.')
  owner = path.empty? ? TOPLEVEL_BINDING.receiver : Object.const_get(path.join('::'))
  owner.method(last)
end

def trioeval_describe(error, loading)
  what = "#{error.class}: #{error.message}".split.join(' ')
  trace = [what, *error.backtrace].join("\n")
  {
    what: what[0, LARGEST_SHOWN],
    trace: trace[0, 2048],
    loading: loading,
    spent: error.is_a?(NoMemoryError)
  }
end

def trioeval_encode(call, value, largest)
  message = JSON.generate({ id: call, value: value })
  return message if message.bytesize <= largest

  raise "the result is #{message.bytesize} bytes of JSON, more than the maximum of #{largest}"
end

function = nil
while (head = channel.read(4)) && head.bytesize == 4
  request = JSON.parse(channel.read(head.unpack1('N')))
  begin
    function ||= trioeval_load(file, name)
    value = function.call(*request['arguments'])
    answer = trioeval_encode(request['id'], value, largest.to_i)
  rescue *FAILURES => e
    answer = JSON.generate({ id: request['id'], error: trioeval_describe(e, function.nil?) })
  end
  exit! if Process.pid != own # a process forked by the code must not answer as well
  channel.write([answer.bytesize].pack('N') + answer)
end
exit!
