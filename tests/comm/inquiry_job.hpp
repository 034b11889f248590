#pragma once

#include <algorithm>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "comm/group_registry.hpp"
#include "comm/inquiry.hpp"
#include "comm/inquiry_hub.hpp"

/// @file
/// Inquiries of whole jobs, on a clock of their own and with a count of messages.

namespace lockstep::comm::testing {

using Clock = InquiryHub::Clock;
using Ranks = std::vector<int>;

/// A rank in a group, that asks and answers as those over NCCL do.
class Member final : public GroupMember {
 public:
  Member(GroupMembership membership, int rank, int size)
      : rank_(rank), inquiry_(rank, size), membership_(std::move(membership)) {
    membership_.listen(*this);
  }

  bool is_behind = false;
  bool is_silent = false;  // it hears, and does not come to answer
  std::string doing = "in all_reduce #20 of 5 f32";
  std::uint64_t collective = 20;
  Ranks partners = {};
  std::optional<Clock::time_point> deadline;  // when it has waited in vain

  // What its error says, and since when.
  std::string words;
  Clock::time_point ended_at;
  int failures = 0;  // of the group, that it was told of

  void look(Clock::time_point now) {
    if (deadline && now > *deadline && words.empty()) inquire(now);
    for (const std::uint64_t asked : std::exchange(questions_, {}))
      if (!is_silent) membership_.answer(standing(asked));
  }
  void leave_group() { membership_.leave({rank_, collective}); }
  void fail(const std::string& reason) { membership_.fail(reason); }
  Standing standing(std::uint64_t asked) const {
    return {.rank = rank_, .collective = asked, .is_behind = is_behind, .doing = doing};
  }
  GroupMembership part(const std::string& name, const Ranks& members) const {
    return membership_.part(name, members);
  }

 private:
  void inquire(Clock::time_point now) {
    inquiry_.begin(collective, *deadline, partners, now);
    if (inquiry_.is_over(now)) {
      words = inquiry_.result();
      ended_at = now;
    } else if (const auto question = inquiry_.take_question()) {
      membership_.ask_who_is_behind(question->collective, question->whom);
    }
  }
  void member_left(const Departure& departure) override { inquiry_.note_left(departure.rank); }
  void member_asks_who_is_behind(std::uint64_t asked) override { questions_.insert(asked); }
  void member_answers(const Standing& standing) override { inquiry_.add(standing); }
  void group_failed(const std::string&) noexcept override { ++failures; }
  void job_failed(const std::string&) noexcept override {}
  void leave() noexcept override {}
  std::string describe_progress() const override { return {}; }

  int rank_;
  Inquiry inquiry_;
  std::set<std::uint64_t> questions_;
  GroupMembership membership_;
};

/// Ranks with a connection to rank 0 each, on which messages take some time and keep their order.
class Job {
 public:
  explicit Job(int size) : hub_(size), to_hub_(std::size_t(size)), from_hub_(std::size_t(size)) {
    for (int rank = 0; rank < size; ++rank) {
      registries_.push_back(std::make_shared<GroupRegistry>());
      registries_.back()->set_announcer(
          [this, rank](const std::string& news) { send(to_hub_[std::size_t(rank)], rank, news); });
      world_.push_back(std::make_unique<Member>(GroupMembership(registries_.back()), rank, size));
    }
  }

  Member& operator[](int rank) { return *world_[std::size_t(rank)]; }
  int size() const { return static_cast<int>(world_.size()); }
  /// The members of a part of the world.
  std::vector<Member*> split(const std::string& name, const Ranks& members) {
    std::vector<Member*> part;
    for (const int rank : members) {
      parts_.push_back(std::make_unique<Member>((*this)[rank].part(name, members),
                                                static_cast<int>(part.size()),
                                                static_cast<int>(members.size())));
      rank_of_part_.push_back(rank);
      part.push_back(parts_.back().get());
    }
    return part;
  }
  /// Neither reads nor writes from now on. Rank 0 is the hub's process.
  void stop(int rank) { stopped_.insert(rank); }

  void run(std::chrono::milliseconds time) {
    for (const auto end = now + time; now < end; now += std::chrono::milliseconds(10)) turn();
  }

  Clock::time_point now{std::chrono::seconds(100)};
  int messages = 0;         // over connections
  std::size_t bytes = 0;    // in them
  std::size_t longest = 0;  // of them

 private:
  struct Sent {
    Clock::time_point due;
    std::string text;
  };
  using Connection = std::deque<Sent>;

  void send(Connection& connection, int rank, const std::string& text) {
    auto due = now + std::chrono::milliseconds(random_() % 30);
    if (!connection.empty()) due = std::max(due, connection.back().due);
    connection.push_back({due, text});
    if (rank == 0) return;
    ++messages;
    bytes += text.size();
    longest = std::max(longest, text.size());
  }
  std::optional<std::string> take(Connection& connection) {
    if (connection.empty() || connection.front().due > now) return std::nullopt;
    std::string text = std::move(connection.front().text);
    connection.pop_front();
    return text;
  }
  void turn() {
    for (int rank = 0; rank < size(); ++rank)
      if (!stopped_.contains(rank)) (*this)[rank].look(now);
    for (std::size_t i = 0; i < parts_.size(); ++i)
      if (!stopped_.contains(rank_of_part_[i])) parts_[i]->look(now);
    if (!stopped_.contains(0)) serve();
    for (int rank = 0; rank < size(); ++rank)
      while (!stopped_.contains(rank)) {
        const auto text = take(from_hub_[std::size_t(rank)]);
        if (!text) break;
        registries_[std::size_t(rank)]->receive(*text);
      }
  }
  void serve() {
    for (int rank = 0; rank < size(); ++rank)
      while (const auto text = take(to_hub_[std::size_t(rank)]))
        if (!hub_.take(rank, *text, now))
          for (int other = 0; other < size(); ++other)
            if (other != rank) send(from_hub_[std::size_t(other)], other, *text);
    for (const InquiryHub::Delivery& due : hub_.take_due(now))
      send(from_hub_[std::size_t(due.rank)], due.rank, due.text);
  }

  InquiryHub hub_;
  std::vector<Connection> to_hub_, from_hub_;
  std::vector<std::shared_ptr<GroupRegistry>> registries_;
  std::vector<std::unique_ptr<Member>> world_, parts_;
  Ranks rank_of_part_;
  std::set<int> stopped_;
  std::mt19937 random_{7};
};

}  // namespace lockstep::comm::testing
