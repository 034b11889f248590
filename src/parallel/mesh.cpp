#include "lockstep/parallel/mesh.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lockstep/comm/host_values.hpp"

namespace lockstep::parallel {
namespace {

/// "data 2 x tensor 4".
std::string describe(std::span<const MeshAxis> axes) {
  std::string text;
  for (const MeshAxis& axis : axes)
    text += (text.empty() ? "" : " x ") + axis.name + " " + std::to_string(axis.size);
  return text.empty() ? "none" : text;
}

/// Before the axes are looked at: what is wrong with one rank's alone is told by all.
/// @param what words before the axes
void check_same(Communicator& world, const std::string& axes, std::string_view what,
                std::string_view remedy) {
  const auto all = comm::all_gather_bytes(world, axes, "axes of a mesh");
  for (std::size_t rank = 1; rank < all.size(); ++rank)
    LOCKSTEP_CHECK(all[rank] == all[0], comm::Mismatch, "mesh: ", what, " ", all[0],
                   " on rank 0 but ", all[rank], " on rank ", rank, "; ", remedy);
}

void check_axes(const Communicator& world, std::span<const MeshAxis> axes) {
  std::int64_t product = 1;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto& [name, size] = axes[i];
    LOCKSTEP_CHECK(!name.empty(), InvalidArgument, "mesh: axis ", i, " has no name");
    LOCKSTEP_CHECK(size >= 1, InvalidArgument, "mesh: axis ", name, " has the size ", size,
                   "; it must be at least 1");
    const bool repeated = std::ranges::count(axes, name, &MeshAxis::name) > 1;
    LOCKSTEP_CHECK(!repeated, InvalidArgument, "mesh: two axes are called ", name);
    product = std::min<std::int64_t>(product * size, INT32_MAX);
  }
  LOCKSTEP_CHECK(product == world.size(), InvalidArgument, "mesh: the axes ", describe(axes),
                 " are for ", product, " ranks, but ", world.name(), " has ", world.size());
}

}  // namespace

Mesh::Mesh(CommunicatorPtr world, std::vector<MeshAxis> axes)
    : world_(std::move(world)), axes_(std::move(axes)), coordinates_(axes_.size()) {
  LOCKSTEP_CHECK(world_, InvalidArgument, "mesh: no group to lay out");
  check_same(*world_, describe(axes_), "the axes are",
             "give the same names and sizes in the same order on every rank");
  check_axes(*world_, axes_);
  int rest = world_->rank();
  for (std::size_t i = axes_.size(); i-- > 0;) {
    coordinates_[i] = rest % axes_[i].size;
    rest /= axes_[i].size;
  }
  for (const MeshAxis& axis : axes_) groups_.push_back(make_group({axis.name}));
}

const CommunicatorPtr& Mesh::group(std::string_view axis) const { return groups_[index_of(axis)]; }

int Mesh::coordinate(std::string_view axis) const { return coordinates_[index_of(axis)]; }

int Mesh::size(std::string_view axis) const { return axes_[index_of(axis)].size; }

CommunicatorPtr Mesh::make_group(std::span<const std::string_view> axes) const {
  std::vector<std::string_view> sorted(axes.begin(), axes.end());
  std::ranges::sort(sorted);  // their order makes no difference
  std::string names;
  for (const std::string_view axis : sorted) (names += names.empty() ? "" : ", ") += axis;
  check_same(*world_, names.empty() ? "none" : names, "a group is asked for along",
             "make the same groups in the same order on every rank");
  std::vector<bool> varies(axes_.size());
  for (const std::string_view axis : axes) {
    const std::size_t index = index_of(axis);
    LOCKSTEP_CHECK(!varies[index], InvalidArgument, "mesh: a group along ", axis, " twice");
    varies[index] = true;
  }
  int color = 0, key = 0;  // row-major numbers over the fixed and over the given axes
  for (std::size_t i = 0; i < axes_.size(); ++i) {
    int& number = varies[i] ? key : color;
    number = number * axes_[i].size + coordinates_[i];
  }
  return world_->split(color, key);
}

std::size_t Mesh::index_of(std::string_view axis) const {
  const auto found = std::ranges::find(axes_, axis, &MeshAxis::name);
  LOCKSTEP_CHECK(found != axes_.end(), InvalidArgument, "mesh: no axis is called \"", axis,
                 "\"; there are ", describe(axes_));
  return static_cast<std::size_t>(found - axes_.begin());
}

}  // namespace lockstep::parallel
