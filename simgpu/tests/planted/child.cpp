#include "planted/child.hpp"

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <optional>
#include <stdexcept>
#include <system_error>

#include <sys/wait.h>
#include <unistd.h>

#include "base/call_site.hpp"
#include "planted/switch.hpp"

namespace planted {
namespace {

constexpr unsigned timeout_seconds = 60;

[[noreturn]] void fail(const char* call) {
  throw std::system_error(errno, std::generic_category(), call);
}

[[noreturn]] void become_program(const Fault& fault, const RunOptions& options, int output) {
  ::dup2(output, STDERR_FILENO);
  ::setenv("LOCKSTEP_SIM_SEED", std::to_string(options.seed).c_str(), 1);
  ::setenv("LOCKSTEP_SIM_ORDER", options.order.c_str(), 1);
  ::alarm(timeout_seconds);
  std::exit(run_here(fault, options.with_fault));
}

std::string read_all(int from) {
  std::string text;
  char part[4096];
  for (;;) {
    const ssize_t got = ::read(from, part, sizeof part);
    if (got > 0) text.append(part, static_cast<std::size_t>(got));
    if (got == 0) return text;
    if (got < 0 && errno != EINTR) fail("read");
  }
}

int wait_for(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0)
    if (errno != EINTR) fail("waitpid");
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

// The blocks between "==== simulated GPU: KIND" and "====".
std::vector<PrintedReport> reports_in(const std::string& output) {
  static const std::string opening = "==== simulated GPU: ", closing = "\n====\n";
  std::vector<PrintedReport> reports;
  for (std::size_t at = output.find(opening); at != std::string::npos;) {
    const std::size_t end = std::min(output.find(closing, at), output.size());
    const std::string block = output.substr(at + opening.size(), end - at - opening.size());
    const std::size_t line = std::min(block.find('\n'), block.size());
    reports.push_back({block.substr(0, line), block.substr(line)});
    at = output.find(opening, end);
  }
  return reports;
}

// What run_here says of a program that throws.
std::string opening_of_refusal(const Fault& fault) {
  return "planted_faults: " + std::string(fault.name) + ": ";
}

std::optional<PrintedReport> refusal_in(const std::string& output, const Fault& fault) {
  const std::string opening = opening_of_refusal(fault);
  const std::size_t at = output.find(opening);
  if (at == std::string::npos) return std::nullopt;
  return PrintedReport{std::string(refusal), output.substr(at + opening.size())};
}

}  // namespace

int run_here(const Fault& fault, bool with_fault) {
  ::setenv("LOCKSTEP_SIM_DEVICES", "2", 1);
  if (with_fault) plant(fault.name);
  try {
    fault.run();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s%s\n", opening_of_refusal(fault).c_str(), error.what());
    return 1;
  }
}

bool holds_in_child(bool (*question)()) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) std::_Exit(question() ? 0 : 1);
  return wait_for(child) == 0;
}

RunResult run_in_child(const Fault& fault, const RunOptions& options) {
  // The debug information is read once, here, rather than by each child.
  static const std::string own_place = simgpu::describe(simgpu::CallSite::here());
  int ends[2];
  if (::pipe(ends) != 0) fail("pipe");
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child < 0) fail("fork");
  if (child == 0) {
    ::close(ends[0]);
    become_program(fault, options, ends[1]);
  }
  ::close(ends[1]);
  RunResult result;
  result.output = read_all(ends[0]);
  ::close(ends[0]);
  result.exit_code = wait_for(child);
  result.reports = reports_in(result.output);
  if (fault.kind == refusal)
    if (auto refused = refusal_in(result.output, fault))
      result.reports.push_back(*std::move(refused));
  return result;
}

}  // namespace planted
