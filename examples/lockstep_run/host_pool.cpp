#include "lockstep_run/host_pool.hpp"

#include <algorithm>

#include <poll.h>

namespace run {
namespace {

constexpr std::chrono::seconds longest_probe(600);
// A longer one was this process' own absence, and not that of the agents.
constexpr std::chrono::seconds longest_interval(2);

}  // namespace

HostPool::HostPool(const HostPoolOptions& options) : probe_(options.probe) {
  for (const Host& host : options.hosts) {
    const bool is_here = host.name == "localhost";
    places_.push_back(
        {.link = HostLink(host, is_here ? std::vector<std::string>() : options.launcher)});
  }
}

HostPool::~HostPool() {
  for (Place& place : places_) place.link.drop("the run has ended");
}

int HostPool::hosts_up() const {
  return static_cast<int>(
      std::ranges::count_if(places_, [](const Place& place) { return place.link.is_up(); }));
}

int HostPool::slots_up() const {
  int slots = 0;
  for (const Host& host : reachable()) slots += host.slots;
  return slots;
}

bool HostPool::is_one_coming() const {
  return std::ranges::any_of(places_, [](const Place& place) {
    return place.link.is_open() && !place.link.is_up() && place.attempts < 2;
  });
}

std::string HostPool::failures() const {
  std::string text;
  for (const Place& place : places_)
    if (!place.link.is_up())
      text += "; " + place.link.host().name + ": " +
              (place.link.is_open() ? "its agent does not answer" : place.link.failure());
  return text;
}

std::vector<Host> HostPool::reachable() const {
  std::vector<Host> hosts;
  for (const Place& place : places_) {
    hosts.push_back(place.link.host());
    if (!place.link.is_up()) hosts.back().slots = 0;
  }
  return hosts;
}

std::vector<std::string> HostPool::try_lost() {
  std::vector<std::string> failures;
  const auto now = Clock::now();
  for (Place& place : places_) {
    // One that comes and goes is tried more and more seldom.
    if (place.link.is_up() && now >= place.next_attempt) place.attempts = 0;
    if (place.link.is_open()) continue;
    const bool is_due = place.attempts == 0 || (probe_.count() > 0 && now >= place.next_attempt);
    if (!is_due) continue;
    if (!place.link.connect()) failures.push_back(place.link.failure());
    const auto pause = probe_ * (1 << std::min(place.attempts++, 10));
    place.next_attempt = now + std::min(pause, longest_probe);
  }
  return failures;
}

void HostPool::wait(int other, std::chrono::milliseconds limit) const {
  std::vector<pollfd> entries{{other, POLLIN, 0}};
  for (const Place& place : places_) entries.push_back({place.link.descriptor(), POLLIN, 0});
  poll(entries.data(), entries.size(), static_cast<int>(limit.count()));
}

void HostPool::keep_alive() {
  const auto passed = Clock::now() - last_alive_;
  if (passed < alive_interval) return;
  last_alive_ += passed;
  for (Place& place : places_)
    if (place.link.is_open())
      place.link.keep_alive(std::min<Clock::duration>(passed, longest_interval));
}

void HostPool::say_alive() {
  for (Place& place : places_) place.link.keep_alive({});
}

}  // namespace run
