#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/timeout_multiplier.hpp"

/// @file
/// Programs whose system calls are seen, by ptrace.

namespace lockstep::testing {

/// A system call that one of a program's threads is about to make, or has made.
struct SystemCall {
  pid_t thread;
  int number;          ///< of those between the marks, from 1
  std::uint64_t call;  ///< such as SYS_write
  bool is_entry;
};

/// How a program ended.
struct TracedEnd {
  bool is_forbidden = false;  ///< the system does not let processes be traced
  int status = 0;             ///< as of waitpid
  int calls = 0;              ///< how many there were between the marks
};

/// Runs a program, whose output goes to a file, and hears of the system calls of all its threads
/// between two SIGSTOPs that its first thread sends to itself, which do not stop it.
/// @param hear may kill the program, or change the thread's registers. Of exits it hears, too.
inline TracedEnd trace(std::vector<std::string> arguments, const std::string& output,
                       const std::function<void(pid_t program, const SystemCall& call)>& hear) {
  constexpr int no_tracing = 126;
  const pid_t program = ::fork();
  if (program == 0) {
    const int file = ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
    ::dup2(file, STDOUT_FILENO);
    ::dup2(file, STDERR_FILENO);
    std::vector<char*> words;
    for (std::string& each : arguments) words.push_back(each.data());
    words.push_back(nullptr);
    ::alarm(60 * timeout_multiplier);  // one that hangs is killed
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(no_tracing);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  TracedEnd end;
  ::waitpid(program, &end.status, 0);
  constexpr long options = PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL;
  if (!WIFSTOPPED(end.status)) {
    end.is_forbidden = WIFEXITED(end.status) && WEXITSTATUS(end.status) == no_tracing;
    return end;
  }
  ::ptrace(PTRACE_SETOPTIONS, program, nullptr, reinterpret_cast<void*>(options));
  const auto go_on = [](pid_t thread, long signal) {
    ::ptrace(PTRACE_SYSCALL, thread, nullptr, reinterpret_cast<void*>(signal));
  };
  go_on(program, 0);
  bool listens = false;
  for (;;) {
    int status = 0;
    const pid_t thread = ::waitpid(-1, &status, __WALL);
    if (thread < 0 && errno == EINTR) continue;
    if (thread < 0) return end;
    if (!WIFSTOPPED(status)) {
      if (thread != program) continue;
      end.status = status;
      return end;
    }
    int signal = WSTOPSIG(status);
    if (signal == (SIGTRAP | 0x80)) {
      signal = 0;
      __ptrace_syscall_info info{};
      const bool is_known = ::ptrace(PTRACE_GET_SYSCALL_INFO, thread, sizeof info, &info) > 0;
      const bool is_entry = info.op == PTRACE_SYSCALL_INFO_ENTRY;
      if (is_known && listens) {
        if (is_entry) ++end.calls;
        hear(program, {thread, end.calls, is_entry ? info.entry.nr : 0, is_entry});
      }
    } else if (signal == SIGSTOP || signal == SIGTRAP) {  // a mark, a new thread, an event
      if (signal == SIGSTOP && thread == program) listens = !listens;
      signal = 0;
    }
    go_on(thread, signal);
  }
}

}  // namespace lockstep::testing
