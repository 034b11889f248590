#include "lockstep_run/host_link.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <csignal>
#include <filesystem>
#include <string_view>

#include <poll.h>
#include <sys/wait.h>

namespace run {
namespace {

constexpr auto silence_limit = std::chrono::seconds(30);
constexpr int most_link_reads = 16;  // at a time: other hosts have something to say, too

/// This program, by the name that it had when it was started: it may be replaced meanwhile.
const std::string& own_path() {
  static const std::string path = std::filesystem::read_symlink("/proc/self/exe").string();
  return path;
}

/// A word as a shell takes it for one.
std::string quoted(const std::string& word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) ||
           std::string_view("/._-+,:@%=").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (std::ranges::all_of(word, is_plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

pid_t start(const std::vector<std::string>& command, int in, int out) {
  std::vector<char*> words;
  for (const std::string& word : command) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t child = checked(fork(), "fork");
  if (child > 0) return child;
  setpgid(0, 0);  // Ctrl-C is for the supervisor alone
  // And so is what a scheduler sends to all, or a terminal that is closed.
  for (const int number : {SIGTERM, SIGUSR1, SIGHUP}) signal(number, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (dup2(in, 0) >= 0 && dup2(out, 1) >= 0) execvp(words[0], words.data());
  const std::string error =
      "lockstep_run: cannot run " + command[0] + ": " + std::strerror(errno) + "\n";
  (void)!::write(2, error.data(), error.size());
  _exit(127);
}

}  // namespace

std::vector<std::string> agent_command(std::vector<std::string> launcher, const std::string& host,
                                       const std::string& program) {
  const bool is_here = launcher.empty();
  const bool is_ssh = !is_here && std::filesystem::path(launcher[0]).filename() == "ssh";
  if (!is_here) launcher.push_back(host);
  launcher.push_back(is_ssh ? quoted(program) : program);
  launcher.emplace_back("--agent");
  launcher.push_back(std::to_string(is_here ? 0 : silence_limit.count()));
  return launcher;
}

HostLink::HostLink(Host host, std::vector<std::string> launcher)
    : host_(std::move(host)), launcher_(std::move(launcher)) {
  (void)own_path();
}

bool HostLink::connect() try {
  Pipe in = Pipe::make(), out = Pipe::make();
  reader_ = MessageReader(agent_handshake);
  unheard_ = {};
  failure_.clear();
  process_ =
      start(agent_command(launcher_, host_.name, own_path()), in.read.get(), out.write.get());
  in_ = std::move(in.write);
  out_ = std::move(out.read);
  for (const Descriptor* end : {&in_, &out_}) fcntl(end->get(), F_SETFL, O_NONBLOCK);
  return true;
} catch (const lockstep::Error& error) {
  failure_ = "cannot start an agent on " + host_.name + ": " + error.what();
  return false;
}

std::vector<Message> HostLink::receive() {
  std::vector<Message> messages;
  std::array<char, 1 << 16> bytes;
  ssize_t count = -1;
  for (int turn = 0; turn < most_link_reads && out_; ++turn) {
    count = ::read(out_.get(), bytes.data(), bytes.size());
    if (count <= 0) break;
    reader_.add({bytes.data(), static_cast<std::size_t>(count)});
    unheard_ = {};
  }
  const bool has_ended = count == 0;
  try {
    while (auto message = reader_.next()) messages.push_back(std::move(*message));
  } catch (const lockstep::CorruptData& error) {
    drop(error.what());
  }
  if (has_ended)
    drop(reader_.has_handshake() ? "its agent has ended" : "no agent could be started");
  return messages;
}

void HostLink::send(const Message& message) {
  const std::string bytes = encode(message);
  std::string_view left = bytes;
  while (!left.empty() && in_) {
    const ssize_t count = ::write(in_.get(), left.data(), left.size());
    if (count > 0) {
      left.remove_prefix(static_cast<std::size_t>(count));
      continue;
    }
    pollfd entry{in_.get(), POLLOUT, 0};
    const bool has_room = errno == EAGAIN && poll(&entry, 1, 1000) > 0;
    if (!has_room && errno != EINTR) return drop("its agent does not read");
  }
}

void HostLink::keep_alive(Clock::duration passed) {
  unheard_ += passed;
  if (!is_open()) return;
  if (unheard_ > silence_limit) {
    ::kill(-process_, SIGKILL);  // it would not end by itself
    return drop("its agent is silent for " + std::to_string(silence_limit.count()) + " s");
  }
  if (is_up()) send({MessageType::alive});
}

void HostLink::drop(const std::string& why) {
  if (!is_open()) return;
  failure_ = why;
  if (!is_up()) ::kill(-process_, SIGKILL);  // a launcher that still connects
  in_.close();                               // which ends the agent
  out_.close();
  const auto deadline = Clock::now() + std::chrono::seconds(2);
  while (waitpid(process_, nullptr, WNOHANG) == 0) {
    if (Clock::now() > deadline) ::kill(-process_, SIGKILL);
    poll(nullptr, 0, 5);
  }
  process_ = -1;
}

}  // namespace run
