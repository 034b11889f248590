#include "lockstep_run/rank_process.hpp"

#include <algorithm>
#include <csignal>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>

namespace run {
namespace {

constexpr std::size_t longest_line = 1 << 16;
constexpr int most_output_reads = 16;  // at a time: others write, too

/// Pointers to texts, as exec takes them.
std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

/// The limit of open files that this process was started with, and its ranks are. Its own is as
/// high as the system allows then: each rank takes several.
const rlimit& inherited_limit_of_files() {
  static const rlimit inherited = [] {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit highest{limit.rlim_max, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &highest);
    return limit;
  }();
  return inherited;
}

/// What the child of a fork becomes.
struct Program {
  const char* folder;
  char* const* command;
  char* const* environment;
  int out, err, listener;
  pid_t parent;
  rlimit files;

  /// Returns only if it fails; errno says why.
  void exec() const {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);  // it died before
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, nullptr);
    // SIGHUP stays ignored: of a closed terminal they hear from the supervisor.
    for (const int number : {SIGPIPE, SIGINT, SIGTERM, SIGUSR1}) signal(number, SIG_DFL);
    const int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) return;
    if (listener >= 0) fcntl(listener, F_SETFD, 0);
    setrlimit(RLIMIT_NOFILE, &files);
    environ = const_cast<char**>(environment);  // whose PATH counts
    if (chdir(folder) == 0) execvp(command[0], command);
  }
};

/// Zero, or the error number that the child of a fork wrote before it ended.
int error_from(const Descriptor& pipe) {
  int error = 0;
  ssize_t count = 0;
  while ((count = ::read(pipe.get(), &error, sizeof error)) < 0 && errno == EINTR) {
  }
  return count == sizeof error ? error : 0;
}

/// The state letter of a process; '?' if there is none.
char state_of(pid_t pid) {
  // It follows the name in brackets.
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t bracket = line.rfind(')');
  return bracket + 2 < line.size() && bracket != line.npos ? line[bracket + 2] : '?';
}

}  // namespace

std::string LineBuffer::add(std::string_view bytes) {
  pending_ += bytes;
  const std::size_t end = pending_.find_last_of("\n\r");
  if (end == std::string::npos && pending_.size() < longest_line) return {};
  const std::size_t size = end == std::string::npos ? pending_.size() : end + 1;
  std::string lines = pending_.substr(0, size);
  pending_.erase(0, size);
  return lines;
}

std::string LineBuffer::rest() {
  if (!pending_.empty()) pending_ += '\n';
  return std::exchange(pending_, {});
}

RankProcess::RankProcess(int rank, const LaunchPlan& plan, int listener) : rank_(rank) {
  std::vector<std::string> variables = plan.environment;
  variables.push_back("LOCKSTEP_RUN_PROGRESS=" + progress_.path());
  if (listener >= 0) variables.push_back("LOCKSTEP_LISTENER=" + std::to_string(listener));
  const std::vector<std::string> environment = environment_with(variables);
  const rlimit& files = inherited_limit_of_files();
  Pipe out = Pipe::make(), err = Pipe::make(), failure = Pipe::make();
  const auto command = pointers_to(plan.command), entries = pointers_to(environment);
  const Program program{plan.folder.c_str(), command.data(), entries.data(), out.write.get(),
                        err.write.get(),     listener,       getpid(),       files};
  const pid_t child = checked(fork(), "fork");
  if (child == 0) {
    program.exec();
    const int error = errno;
    (void)!::write(failure.write.get(), &error, sizeof error);
    _exit(127);
  }
  failure.write.close();
  if (const int error = error_from(failure.read)) {
    waitpid(child, nullptr, 0);
    LOCKSTEP_THROW(InvalidArgument, "cannot run ", plan.command[0], " in ", plan.folder, ": ",
                   std::strerror(error));
  }
  pid_ = child;
  streams_[0].read = std::move(out.read);
  streams_[1].read = std::move(err.read);
  for (const Stream& stream : streams_) fcntl(stream.read.get(), F_SETFL, O_NONBLOCK);
}

void RankProcess::read(const Output& output) {
  std::array<char, 1 << 16> bytes;
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    Stream& stream = streams_[i];
    for (int turn = 0; turn < most_output_reads && stream.read; ++turn) {
      const ssize_t count = ::read(stream.read.get(), bytes.data(), bytes.size());
      if (count < 0) break;  // nothing now
      if (count == 0) stream.read.close();
      const std::string lines =
          count == 0 ? stream.lines.rest()
                     : stream.lines.add({bytes.data(), static_cast<std::size_t>(count)});
      if (!lines.empty()) output(static_cast<int>(i) + 1, lines);
    }
  }
}

const char* RankProcess::activity() const {
  switch (state_of(pid_)) {
    case 'R': return "computes";
    case 'S': return "sleeps, or waits";
    case 'D': return "waits for a disk, or a file system";
    case 'T':
    case 't': return "is stopped, by a signal or a debugger";
    default: return "is in a state that is not known";
  }
}

int RankProcess::look_if_stopped() {
  const char state = state_of(pid_);
  return stops_ = state == 'T' || state == 't' ? stops_ + 1 : 0;
}

void RankProcess::signal(int number) const {
  if (pid_ <= 0) return;
  if (number == SIGKILL) ::kill(-pid_, number);
  ::kill(pid_, number);  // which may have left its group
}

int RankProcess::finish(const Output& output) {
  signal(SIGKILL);  // before its number is free for another process
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);  // signals that come meanwhile are not for it
  read(output);
  for (std::size_t i = 0; i < streams_.size(); ++i) {
    const std::string rest = streams_[i].lines.rest();
    if (!rest.empty()) output(static_cast<int>(i) + 1, rest);
    streams_[i].read.close();
  }
  return status;
}

}  // namespace run
