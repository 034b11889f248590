#include "lockstep_run/output.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>

#include <poll.h>
#include <unistd.h>

namespace run {

namespace {

/// Nobody reads a closed pipe; a full disk was to keep what the ranks say.
void note_loss(int error) {
  static bool is_told = false;
  if (error == EPIPE || std::exchange(is_told, true)) return;
  std::cerr << "lockstep_run: what the ranks write is lost: " << std::strerror(error) << '\n';
}

}  // namespace

void write_all(int stream, std::string_view text, const std::function<bool()>& goes_on) {
  constexpr std::size_t piece = 4096;  // what a pipe with room takes at once
  while (!text.empty()) {
    pollfd room{stream, POLLOUT, 0};
    if (poll(&room, 1, 100) <= 0) {
      if (!goes_on()) return;
      continue;
    }
    const ssize_t count = ::write(stream, text.data(), std::min(text.size(), piece));
    if (count < 0 && errno != EINTR && errno != EAGAIN) return note_loss(errno);
    if (count > 0) text.remove_prefix(static_cast<std::size_t>(count));
  }
}

bool has_room(int stream) {
  pollfd room{stream, POLLOUT, 0};
  return poll(&room, 1, 0) > 0;
}

std::string tagged(int rank, std::string_view lines) {
  const std::string tag = "[rank " + std::to_string(rank) + "] ";
  std::string text;
  while (!lines.empty()) {
    const std::size_t size = std::min(lines.find('\n'), lines.size() - 1) + 1;
    text += tag;
    text += lines.substr(0, size);
    lines.remove_prefix(size);
  }
  return text;
}

}  // namespace run
