#include <utility>

#include "comm/hier/hier_executor.hpp"
#include "comm/shm/meeting.hpp"
#include "comm/shm/shm_executor.hpp"

namespace lockstep::comm::hier {
namespace {

std::vector<int> of_group(const std::vector<int>& places, const std::vector<int>& members) {
  std::vector<int> ranks;
  for (const int place : places) ranks.push_back(members[static_cast<std::size_t>(place)]);
  return ranks;
}

// Only the ranks of a host hear why it has no window; then all hear it.
std::unique_ptr<shm::Window> enter_window(const SplitPlan& plan, const shm::Meeting& meeting) {
  std::unique_ptr<shm::Window> window;
  std::string reason;
  try {
    window = shm::enter_window(meeting);
  } catch (const Unsupported& error) {
    reason = error.what();
  }
  const auto reasons = plan.all_gather(reason);
  for (const int member : plan.members) {
    const std::string& theirs = reasons[static_cast<std::size_t>(member)];
    LOCKSTEP_CHECK(theirs.empty(), Unsupported, "rank ", member, ": ", theirs);
  }
  return window;
}

}  // namespace

std::unique_ptr<host::Executor> compose(host::Executor& whole,
                                        std::unique_ptr<host::Executor> messages,
                                        std::span<const int> host_of_rank, const SplitPlan& plan,
                                        bool check_signatures) {
  std::vector<int> hosts;
  for (const int member : plan.members)
    hosts.push_back(host_of_rank[static_cast<std::size_t>(member)]);
  const HostLayout layout(hosts, plan.place);
  const bool has_group = !plan.members.empty();
  const bool is_one_host = layout.hosts.size() == 1;

  SplitPlan leaders;
  leaders.color = -1;
  leaders.place = layout.host;
  leaders.name = plan.name + "/leaders";
  leaders.all_gather = plan.all_gather;
  if (has_group && layout.is_leader()) {
    leaders.color = plan.color;
    leaders.members = of_group(layout.leaders(), plan.members);
  }
  auto between = whole.split(leaders);

  shm::Meeting meeting{{}, layout.place, plan.all_gather};
  if (has_group && (is_one_host || layout.own().size() > 1))
    meeting.members = of_group(layout.own(), plan.members);
  auto window = enter_window(plan, meeting);

  if (!has_group) return nullptr;
  std::unique_ptr<host::Executor> inside;
  if (window)
    inside = std::make_unique<shm::ShmExecutor>(std::move(window), layout.place, plan.name,
                                                check_signatures, layout.own());
  if (is_one_host) return inside;
  return std::make_unique<HierExecutor>(
      layout, Parts{std::move(messages), std::move(inside), std::move(between)}, plan.name,
      check_signatures);
}

}  // namespace lockstep::comm::hier
