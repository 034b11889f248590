#include "comm/group_registry.hpp"

#include <algorithm>
#include <sstream>
#include <utility>

#include "comm/group_news.hpp"
#include "lockstep/core/error.hpp"

namespace lockstep::comm {

using news::next_word, news::number;

namespace {

// Bytes of news of a group that is not there yet: a line of each member is far less.
constexpr std::size_t max_early = std::size_t{8} << 20;

AwaitedMessage message_in(int rank, std::string_view words) {
  AwaitedMessage message{.rank = rank};
  message.peer = number<int>(next_word(words));
  message.is_sent = number<int>(next_word(words)) != 0;
  message.number = number<std::uint64_t>(next_word(words));
  message.place = number<std::uint64_t>(next_word(words));
  message.call = words;
  return message;
}

Standing standing_in(std::string_view words) {
  Standing standing;
  standing.collective = number<std::uint64_t>(next_word(words));
  standing.is_behind = number<int>(next_word(words)) != 0;
  standing.doing = words;
  return standing;
}

// Of several ranks at once, where all of them do the same.
void tell_answers(GroupMember& member, std::string_view words) {
  constexpr int most_ranks = 1 << 16;
  const std::vector<int> ranks = news::ranks_in(next_word(words), most_ranks);
  Standing standing = standing_in(words);
  for (const int rank : ranks) {
    standing.rank = rank;
    member.member_answers(standing);
  }
}

void tell(GroupMember& member, std::string_view words) {
  const std::string_view kind = next_word(words);
  next_word(words);  // the key
  if (kind == news::failed) return member.group_failed(std::string(words));
  if (kind == news::asks) return member.member_asks_who_is_behind(number<std::uint64_t>(words));
  if (kind == news::answers) return tell_answers(member, words);
  const int rank = number<int>(next_word(words));
  if (kind == news::awaits) return member.member_awaits(message_in(rank, words));
  member.member_left({rank, number<std::uint64_t>(words)});
}

}  // namespace

void GroupRegistry::set_announcer(Announcer announcer) {
  const std::lock_guard lock(announcer_mutex_);
  announcer_ = std::move(announcer);
}

bool GroupRegistry::announce(const std::string& own) {
  std::string line = own;
  std::ranges::replace(line, news::separator, ' ');  // in labels, or reasons
  const std::lock_guard lock(announcer_mutex_);
  if (announcer_) announcer_(line);
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

void GroupRegistry::receive(std::string_view all) {
  while (!all.empty()) {
    const std::string_view one = all.substr(0, all.find(news::separator));
    all.remove_prefix(std::min(one.size() + 1, all.size()));
    receive_one(one);
  }
}

void GroupRegistry::receive_one(std::string_view one) {
  std::string_view words = one;
  const std::string_view kind = next_word(words);
  const auto known = {news::left, news::failed, news::asks, news::answers, news::awaits};
  if (std::ranges::find(known, kind) == known.end()) return;
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(std::string(next_word(words)));
  if (found == groups_.end()) return;
  Group& group = found->second;
  if (group.member) return tell(*group.member, one);
  // Without news of all departures the others still see the ends of connections, or time-outs.
  const std::size_t bytes = sizeof(std::string) + one.size();
  if (group.early_bytes + bytes > max_early) return;
  group.early_bytes += bytes;
  group.early.emplace_back(one);
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

void GroupRegistry::look_after_all() noexcept {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;
  for (const auto& [key, group] : groups_)
    if (group.member) group.member->look_after();
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
    : GroupMembership(registry, registry->next_key(), {}) {}

GroupMembership::GroupMembership(std::shared_ptr<GroupRegistry> registry, std::string key,
                                 std::vector<int> members)
    : registry_(std::move(registry)), key_(std::move(key)), members_(std::move(members)) {
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

GroupMembership GroupMembership::part(const std::string& name, std::span<const int> members) const {
  if (!registry_) return {};
  std::vector<int> of_job;
  for (const int member : members) of_job.push_back(rank_in_job(member));
  return GroupMembership(registry_, key_ + '/' + name, std::move(of_job));
}

int GroupMembership::rank_in_job(int rank) const {
  return members_.empty() ? rank : members_[static_cast<std::size_t>(rank)];
}

void GroupMembership::listen(GroupMember& member) {
  if (!registry_) return;
  const std::lock_guard lock(registry_->mutex_);
  GroupRegistry::Group& group = registry_->groups_[key_];
  group.member = &member;
  for (const std::string& one : std::exchange(group.early, {})) tell(member, one);
}

void GroupMembership::leave(const Departure& own) {
  if (registry_)
    registry_->announce(std::string(news::left) + ' ' + key_ + ' ' + std::to_string(own.rank) +
                        ' ' + std::to_string(own.collectives));
}

bool GroupMembership::ask_who_is_behind(std::uint64_t collective, std::span<const int> whom) {
  if (!registry_) return false;
  std::vector<int> of_job;
  for (const int rank : whom) of_job.push_back(rank_in_job(rank));
  std::ranges::sort(of_job);
  std::span<const int> rest = of_job;
  std::string list = news::take_rank_list(rest, news::max_bytes / 2);
  // Those between them that are in no such group hear it in vain.
  if (!rest.empty()) list = std::to_string(of_job.front()) + '-' + std::to_string(of_job.back());
  return registry_->announce(std::string(news::asks) + ' ' + key_ + ' ' +
                             std::to_string(collective) + ' ' + list);
}

std::optional<int> GroupMembership::hub() const {
  if (members_.empty()) return 0;
  const auto found = std::ranges::find(members_, 0);
  if (found == members_.end()) return std::nullopt;
  return static_cast<int>(found - members_.begin());
}

void GroupMembership::answer(const Standing& own) {
  if (!registry_) return;
  lockstep::detail::TextStream text;
  text << news::answers << ' ' << key_ << ' ' << own.rank << ' ' << own.collective << ' '
       << own.is_behind << ' ' << own.doing;
  registry_->announce(std::move(text).str());
}

void GroupMembership::tell_awaited(const AwaitedMessage& message) {
  if (!registry_) return;
  lockstep::detail::TextStream text;
  text << news::awaits << ' ' << key_ << ' ' << message.rank << ' ' << message.peer << ' '
       << message.is_sent << ' ' << message.number << ' ' << message.place << ' ' << message.call;
  registry_->announce(std::move(text).str());
}

void GroupMembership::fail(const std::string& reason) {
  if (registry_) registry_->announce(std::string(news::failed) + ' ' + key_ + ' ' + reason);
}

void GroupMembership::declare(const std::string& group, int rank, int size, std::uint64_t subject,
                              const std::string& end) {
  if (!registry_) return;
  if (const ComparisonPtr comparison = registry_->comparison())
    comparison->declare(group, rank, size, subject, end);
}

}  // namespace lockstep::comm
