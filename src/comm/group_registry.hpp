#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "comm/signature_comparison.hpp"

namespace lockstep::comm {

/// A rank that left its group in good order: whatever the others call beyond, it never joins.
struct Departure {
  int rank = 0;                   ///< within the group
  std::uint64_t collectives = 0;  ///< that it took part in
};

/// A message between two members, as the one says that has waited for the other for long. Both
/// number the messages of a pair alike, each direction by itself.
struct AwaitedMessage {
  int rank = 0, peer = 0;    ///< who waits, and for whom
  bool is_sent = false;      ///< by who waits; else it is to be received there
  std::uint64_t number = 0;  ///< how many messages of theirs in that direction it ends
  std::uint64_t place = 0;   ///< collectives that come before it
  std::string call = {};     ///< "receive from rank 1 #3 of 5 f32"
};

/// How a member stands to a collective that another one waits for in vain: its answer to that one.
struct Standing {
  int rank = 0;                  ///< within the group
  std::uint64_t collective = 0;  ///< that was asked for
  bool is_behind = false;        ///< it has not begun it
  std::string doing = {};        ///< instead: "idle after all_reduce #19 of 5 f32"; may be left out
  bool operator==(const Standing&) const = default;
};

/// This rank's end of a group, as the registry reaches it, from any thread.
class GroupMember {
 public:
  /// Another member left. Must not wait.
  virtual void member_left(const Departure& departure) = 0;
  /// Another member has waited for this collective until its time was over, and asks who has not
  /// begun it: this one answers (GroupMembership::answer), though not within the call.
  virtual void member_asks_who_is_behind(std::uint64_t /*collective*/) {}
  /// Another member's answer to whoever asked. Must not wait.
  virtual void member_answers(const Standing& /*standing*/) {}
  /// Another member waits for a message of some rank. Must not wait.
  virtual void member_awaits(const AwaitedMessage& /*message*/) {}
  /// Another member ended the group: ends it here. Must not wait.
  virtual void group_failed(const std::string& reason) noexcept = 0;
  /// The job failed: ends the group, whatever else this process is stuck in. Must not wait.
  virtual void job_failed(const std::string& reason) noexcept = 0;
  /// Lets what is under way end, tells the other members that this rank leaves, and refuses later
  /// operations. A second call waits for the first.
  virtual void leave() noexcept = 0;
  /// See Communicator::describe_progress.
  virtual std::string describe_progress() const = 0;
  /// How long the operation has run that is under way, beside other ranks; zero if none is, or
  /// nobody knows. Must not wait.
  virtual std::chrono::steady_clock::duration running_for() const noexcept { return {}; }
  /// Every half a second or so, from a thread that nothing holds up: ends the group if its own
  /// thread, which should, has been kept from it for too long. Must not wait.
  virtual void look_after() noexcept {}

 protected:
  ~GroupMember() = default;
};

/// The groups this process is in. Carries the news of a member that left a group, or that failed in
/// it, to the members that stay; how they travel is the announcer's business (a session's control
/// channel, or a call where ranks are threads).
class GroupRegistry {
 public:
  using Announcer = std::function<void(const std::string& news)>;

  /// Where news of this process go; null for nowhere. Returns once no call of the former is under
  /// way.
  void set_announcer(Announcer announcer);
  /// Where the groups compare how their members end; null for nowhere.
  void set_comparison(ComparisonPtr comparison);
  /// Another process' news, as its announcer was given them, or several with a news::separator
  /// between them. News of groups unknown here are ignored.
  void receive(std::string_view all);
  /// Ends all groups here; the other ranks hear of it otherwise.
  void fail_all(const std::string& reason) noexcept;
  /// What this rank does in each of its groups, and did last; see Communicator::describe_progress.
  std::vector<std::string> describe_progress();
  /// How long the oldest operation has run that is under way here. Does not wait: zero while
  /// somebody else has the registry.
  std::chrono::steady_clock::duration longest_running() noexcept;
  /// Has each member looked after. Does not wait: nothing happens while somebody else has the
  /// registry.
  void look_after_all() noexcept;
  /// Leaves all groups, whoever still owns them; parts before the group they are of.
  void leave_all() noexcept;

 private:
  friend class GroupMembership;
  struct Group {
    GroupMember* member = nullptr;
    int calls = 0;                   // of the member that are under way without the mutex
    std::vector<std::string> early;  // news that came before the member
    std::size_t early_bytes = 0;
  };
  std::string next_key();
  bool announce(const std::string& own);
  void receive_one(std::string_view one);
  ComparisonPtr comparison();

  std::mutex announcer_mutex_;
  Announcer announcer_;
  ComparisonPtr comparison_;  // guarded by the announcer's mutex
  std::mutex mutex_;  // held while a member hears of news, so that none hears of it too late
  std::condition_variable no_call_;
  std::map<std::string, Group> groups_;
  int made_ = 0;
};

/// One group's place in the registry, from before the group exists until it is gone. Without a
/// registry it does nothing.
class GroupMembership {
 public:
  GroupMembership() = default;
  /// Of a group of all ranks, that is not part of another. All must make theirs in the same order,
  /// before the first exchange of the group.
  explicit GroupMembership(std::shared_ptr<GroupRegistry> registry);
  GroupMembership(GroupMembership&& other) noexcept = default;
  GroupMembership& operator=(GroupMembership&&) = delete;
  /// Returns once no call of the member is under way.
  ~GroupMembership();

  /// Of a part of this group. @param name tells the parts apart, alike on all members.
  /// @param members ranks of this group, in the order that they have in the part
  GroupMembership part(const std::string& name, std::span<const int> members) const;
  /// From now on the member hears of the others, and of what has happened already.
  void listen(GroupMember& member);
  /// Tells the other members that this rank leaves.
  void leave(const Departure& own);
  /// Asks other members who has not begun this collective. False if they cannot hear it.
  bool ask_who_is_behind(std::uint64_t collective, std::span<const int> whom);
  /// The member through whose process such questions go: rank 0 of the job. None if it is not in
  /// the group.
  std::optional<int> hub() const;
  /// Answers that, to whoever asks.
  void answer(const Standing& own);
  /// Tells the other members what this rank waits for.
  void tell_awaited(const AwaitedMessage& message);
  /// Tells the other members that this rank ended the group.
  void fail(const std::string& reason);
  /// See CommunicatorBackend::declare. @param group its name in messages.
  void declare(const std::string& group, int rank, int size, std::uint64_t subject,
               const std::string& end);

 private:
  GroupMembership(std::shared_ptr<GroupRegistry> registry, std::string key,
                  std::vector<int> members);
  int rank_in_job(int rank) const;

  std::shared_ptr<GroupRegistry> registry_;
  std::string key_;
  std::vector<int> members_;  // their ranks in the job; empty: all of it
};

}  // namespace lockstep::comm
