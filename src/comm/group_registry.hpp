#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::comm {

/// A rank that left its group in good order: whatever the others call beyond, it never joins.
struct Departure {
  int rank = 0;                   ///< within the group
  std::uint64_t collectives = 0;  ///< that it took part in
};

/// The groups this process is in. Carries the news of a member that left a group to the members
/// that stay; how it travels is the announcer's business (a session's control channel, or a call
/// where ranks are threads).
class GroupRegistry {
 public:
  using Handler = std::function<void(const Departure&)>;
  using Announcer = std::function<void(const std::string& news)>;

  /// Where own departures go; null for nowhere. Returns once no call of the former is under way.
  void set_announcer(Announcer announcer);
  /// Another process' news, as its announcer was given it. News of groups unknown here are ignored.
  void receive(std::string_view news);

 private:
  friend class GroupMembership;
  struct Group {
    Handler handler;
    std::vector<Departure> early;  // came before the handler
  };
  std::string next_key();
  void announce(const std::string& key, const Departure& departure);

  std::mutex announcer_mutex_;
  Announcer announcer_;
  std::mutex mutex_;  // held while a handler runs, so that none runs for a group that is gone
  std::map<std::string, Group> groups_;
  int made_ = 0;
};

/// One group's place in the registry, from before the group exists until it is gone. Without a
/// registry it does nothing.
class GroupMembership {
 public:
  GroupMembership() = default;
  /// Of a group that is not part of another. All ranks must make theirs in the same order, before
  /// the first exchange of the group.
  explicit GroupMembership(std::shared_ptr<GroupRegistry> registry);
  GroupMembership(GroupMembership&& other) noexcept = default;
  GroupMembership& operator=(GroupMembership&&) = delete;
  ~GroupMembership();

  /// Of a part of this group. @param name tells the parts apart, alike on all members.
  GroupMembership part(const std::string& name) const;
  /// From now on the handler hears of members that leave, and of those that have left already.
  void listen(GroupRegistry::Handler handler);
  /// Tells the other members that this rank leaves.
  void leave(const Departure& own);

 private:
  GroupMembership(std::shared_ptr<GroupRegistry> registry, std::string key);

  std::shared_ptr<GroupRegistry> registry_;
  std::string key_;
};

}  // namespace lockstep::comm
