#include "lockstep/autograd/place.hpp"

#include <atomic>
#include <exception>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "autograd/name_place.hpp"
#include "lockstep/core/thread_kept.hpp"

namespace lockstep::autograd {
namespace {

struct Places {
  std::mutex mutex;
  std::map<PlaceId, const Place*> alive;
};

/// For the life of the process: modules of static storage duration leave after all else.
Places& places() {
  static Places& places = *new Places;
  return places;
}

PlaceId next_id() {
  static std::atomic<PlaceId> last{0};
  return ++last;
}

}  // namespace

Place::Place(std::function<std::string()> path) : id_(next_id()), path_(std::move(path)) {
  const std::lock_guard lock(places().mutex);
  places().alive[id_] = this;
}

Place::~Place() {
  const std::lock_guard lock(places().mutex);
  places().alive.erase(id_);
}

std::string path_of(PlaceId place) {
  const std::lock_guard lock(places().mutex);
  const auto found = places().alive.find(place);
  return found == places().alive.end() ? std::string() : found->second->path_();
}

void name_place(Error& error, const std::string& path) {
  // Known by identity: held here, so that no later error can lie at the same address.
  static thread_local lockstep::detail::KeptByThread<std::exception_ptr> kept;
  std::exception_ptr& placed = kept.get();
  const std::exception_ptr present = std::current_exception();
  if (present == placed || path.empty()) return;
  static_cast<std::runtime_error&>(error) = std::runtime_error("in " + path + ": " + error.what());
  placed = present;
}

}  // namespace lockstep::autograd
