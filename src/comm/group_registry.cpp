#include "comm/group_registry.hpp"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <utility>

namespace lockstep::comm {
namespace {

// News on the wire: "left KEY RANK COLLECTIVES", "failed KEY REASON", "asks KEY COLLECTIVE",
// "answers KEY RANK COLLECTIVE IS_BEHIND DOING" or "awaits KEY RANK PEER IS_SENT NUMBER PLACE
// CALL".
constexpr std::string_view left = "left", failed = "failed", asks = "asks", answers = "answers",
                           awaits = "awaits";

// Bytes of news of a group that is not there yet: a line of each member is far less.
constexpr std::size_t max_early = std::size_t{8} << 20;

// Takes the first word away.
std::string_view next_word(std::string_view& text) {
  const std::size_t end = std::min(text.find(' '), text.size());
  const std::string_view word = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return word;
}

template <class T>
T number(std::string_view word) {
  T value{};
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

AwaitedMessage message_in(int rank, std::string_view words) {
  AwaitedMessage message{.rank = rank};
  message.peer = number<int>(next_word(words));
  message.is_sent = number<int>(next_word(words)) != 0;
  message.number = number<std::uint64_t>(next_word(words));
  message.place = number<std::uint64_t>(next_word(words));
  message.call = words;
  return message;
}

Standing standing_in(int rank, std::string_view words) {
  Standing standing{.rank = rank};
  standing.collective = number<std::uint64_t>(next_word(words));
  standing.is_behind = number<int>(next_word(words)) != 0;
  standing.doing = words;
  return standing;
}

void tell(GroupMember& member, std::string_view news) {
  const std::string_view kind = next_word(news);
  next_word(news);  // the key
  if (kind == failed) return member.group_failed(std::string(news));
  if (kind == asks) return member.member_asks_who_is_behind(number<std::uint64_t>(news));
  const int rank = number<int>(next_word(news));
  if (kind == answers) return member.member_answers(standing_in(rank, news));
  if (kind == awaits) return member.member_awaits(message_in(rank, news));
  member.member_left({rank, number<std::uint64_t>(news)});
}

}  // namespace

void GroupRegistry::set_announcer(Announcer announcer) {
  const std::lock_guard lock(announcer_mutex_);
  announcer_ = std::move(announcer);
}

bool GroupRegistry::announce(const std::string& news) {
  const std::lock_guard lock(announcer_mutex_);
  if (announcer_) announcer_(news);
  return static_cast<bool>(announcer_);
}

void GroupRegistry::set_comparison(ComparisonPtr comparison) {
  const std::lock_guard lock(announcer_mutex_);
  comparison_ = std::move(comparison);
}

ComparisonPtr GroupRegistry::comparison() {
  const std::lock_guard lock(announcer_mutex_);
  return comparison_;
}

void GroupRegistry::receive(std::string_view news) {
  std::string_view words = news;
  const std::string_view kind = next_word(words);
  const auto known = {left, failed, asks, answers, awaits};
  if (std::ranges::find(known, kind) == known.end()) return;
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(std::string(next_word(words)));
  if (found == groups_.end()) return;
  Group& group = found->second;
  if (group.member) return tell(*group.member, news);
  // Without news of all departures the others still see the ends of connections, or time-outs.
  const std::size_t bytes = sizeof(std::string) + news.size();
  if (group.early_bytes + bytes > max_early) return;
  group.early_bytes += bytes;
  group.early.emplace_back(news);
}

void GroupRegistry::fail_all(const std::string& reason) noexcept {
  const std::lock_guard lock(mutex_);
  for (auto& [key, group] : groups_)
    if (group.member) group.member->job_failed(reason);
}

std::vector<std::string> GroupRegistry::describe_progress() {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> groups;
  for (const auto& [key, group] : groups_)
    if (group.member) groups.push_back(group.member->describe_progress());
  return groups;
}

std::chrono::steady_clock::duration GroupRegistry::longest_running() noexcept {
  std::chrono::steady_clock::duration longest{};
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return longest;
  for (const auto& [key, group] : groups_)
    if (group.member) longest = std::max(longest, group.member->running_for());
  return longest;
}

// Without the mutex: what is under way may wait for news.
void GroupRegistry::leave_all() noexcept {
  std::unique_lock lock(mutex_);
  std::vector<std::string> keys;
  for (const auto& [key, group] : groups_) keys.push_back(key);
  std::ranges::reverse(keys);  // a part's key begins with that of the group
  for (const std::string& key : keys) {
    const auto found = groups_.find(key);
    if (found == groups_.end() || !found->second.member) continue;
    Group& group = found->second;
    ++group.calls;
    lock.unlock();
    group.member->leave();
    lock.lock();
    --group.calls;
    no_call_.notify_all();
  }
}

std::string GroupRegistry::next_key() {
  const std::lock_guard lock(mutex_);
  return std::to_string(made_++);
}

GroupMembership::GroupMembership(std::shared_ptr<GroupRegistry> registry)
    : GroupMembership(registry, registry->next_key()) {}

GroupMembership::GroupMembership(std::shared_ptr<GroupRegistry> registry, std::string key)
    : registry_(std::move(registry)), key_(std::move(key)) {
  const std::lock_guard lock(registry_->mutex_);
  registry_->groups_[key_];
}

GroupMembership::~GroupMembership() {
  if (!registry_) return;
  std::unique_lock lock(registry_->mutex_);
  GroupRegistry::Group& group = registry_->groups_[key_];
  registry_->no_call_.wait(lock, [&] { return group.calls == 0; });
  registry_->groups_.erase(key_);
}

GroupMembership GroupMembership::part(const std::string& name) const {
  return registry_ ? GroupMembership(registry_, key_ + '/' + name) : GroupMembership();
}

void GroupMembership::listen(GroupMember& member) {
  if (!registry_) return;
  const std::lock_guard lock(registry_->mutex_);
  GroupRegistry::Group& group = registry_->groups_[key_];
  group.member = &member;
  for (const std::string& news : std::exchange(group.early, {})) tell(member, news);
}

void GroupMembership::leave(const Departure& own) {
  if (registry_)
    registry_->announce(std::string(left) + ' ' + key_ + ' ' + std::to_string(own.rank) + ' ' +
                        std::to_string(own.collectives));
}

bool GroupMembership::ask_who_is_behind(std::uint64_t collective) {
  return registry_ &&
         registry_->announce(std::string(asks) + ' ' + key_ + ' ' + std::to_string(collective));
}

void GroupMembership::answer(const Standing& own) {
  if (!registry_) return;
  std::ostringstream news;
  news << answers << ' ' << key_ << ' ' << own.rank << ' ' << own.collective << ' ' << own.is_behind
       << ' ' << own.doing;
  registry_->announce(std::move(news).str());
}

void GroupMembership::tell_awaited(const AwaitedMessage& message) {
  if (!registry_) return;
  std::ostringstream news;
  news << awaits << ' ' << key_ << ' ' << message.rank << ' ' << message.peer << ' '
       << message.is_sent << ' ' << message.number << ' ' << message.place << ' ' << message.call;
  registry_->announce(std::move(news).str());
}

void GroupMembership::fail(const std::string& reason) {
  if (registry_) registry_->announce(std::string(failed) + ' ' + key_ + ' ' + reason);
}

void GroupMembership::declare(const std::string& group, int rank, int size, std::uint64_t subject,
                              const std::string& end) {
  if (!registry_) return;
  if (const ComparisonPtr comparison = registry_->comparison())
    comparison->declare(group, rank, size, subject, end);
}

}  // namespace lockstep::comm
