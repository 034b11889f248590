#include "comm/group_registry.hpp"

#include <charconv>
#include <utility>

namespace lockstep::comm {
namespace {

// News on the wire: "RANK COLLECTIVES KEY".
std::string to_news(const std::string& key, const Departure& departure) {
  return std::to_string(departure.rank) + ' ' + std::to_string(departure.collectives) + ' ' + key;
}

bool parse_news(std::string_view news, std::string& key, Departure& departure) {
  const char* const end = news.data() + news.size();
  const auto rank = std::from_chars(news.data(), end, departure.rank);
  if (rank.ec != std::errc() || rank.ptr == end) return false;
  const auto count = std::from_chars(rank.ptr + 1, end, departure.collectives);
  if (count.ec != std::errc() || count.ptr == end) return false;
  key.assign(count.ptr + 1, end);
  return true;
}

}  // namespace

void GroupRegistry::set_announcer(Announcer announcer) {
  const std::lock_guard lock(announcer_mutex_);
  announcer_ = std::move(announcer);
}

void GroupRegistry::announce(const std::string& key, const Departure& departure) {
  const std::lock_guard lock(announcer_mutex_);
  if (announcer_) announcer_(to_news(key, departure));
}

void GroupRegistry::receive(std::string_view news) {
  std::string key;
  Departure departure;
  if (!parse_news(news, key, departure)) return;
  const std::lock_guard lock(mutex_);
  const auto found = groups_.find(key);
  if (found == groups_.end()) return;
  if (found->second.handler)
    found->second.handler(departure);
  else
    found->second.early.push_back(departure);
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
  const std::lock_guard lock(registry_->mutex_);
  registry_->groups_.erase(key_);
}

GroupMembership GroupMembership::part(const std::string& name) const {
  return registry_ ? GroupMembership(registry_, key_ + '/' + name) : GroupMembership();
}

void GroupMembership::listen(GroupRegistry::Handler handler) {
  if (!registry_) return;
  const std::lock_guard lock(registry_->mutex_);
  GroupRegistry::Group& group = registry_->groups_[key_];
  group.handler = std::move(handler);
  for (const Departure& departure : std::exchange(group.early, {})) group.handler(departure);
}

void GroupMembership::leave(const Departure& own) {
  if (registry_) registry_->announce(key_, own);
}

}  // namespace lockstep::comm
