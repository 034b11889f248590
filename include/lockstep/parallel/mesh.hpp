#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/comm/communicator.hpp"

/// @file
/// Ranks laid out along named axes, such as data and tensor.

namespace lockstep::parallel {

/// A direction of a mesh: what varies along it, and over how many ranks.
struct MeshAxis {
  std::string name;
  int size = 1;
};

/// Lays the ranks of a group out as a grid with named axes, as PyTorch's DeviceMesh and JAX's Mesh
/// do, and forms the groups along them. Ranks are numbered in row-major order: neighbours along the
/// last axis have neighbouring numbers, so the axis that communicates most belongs last.
///
///     parallel::Mesh mesh(session.world(), {{"data", 2}, {"tensor", 2}});  // of 4 ranks
///     DistributedDataParallel replica(model, mesh.group("data"));
///     Tensor y = parallel::all_reduce(partial, mesh.group("tensor"), ResultGradient::replicated);
///
/// All ranks must make the same meshes, and the same groups of them, in the same order.
class Mesh {
 public:
  /// Forms the group along each axis. Blocks; every rank of `world` must call it.
  /// @param axes whose sizes multiply to world.size().
  /// @throws comm::Mismatch on every rank if the ranks give different axes, InvalidArgument on
  /// every rank for axes without a name, two of one name, or sizes that do not multiply to the
  /// number of ranks.
  Mesh(CommunicatorPtr world, std::vector<MeshAxis> axes);

  /// The ranks that differ from this one along one axis alone, in the order of that axis.
  /// @throws InvalidArgument for an unknown axis, naming those that there are.
  const CommunicatorPtr& group(std::string_view axis) const;
  /// This rank's place along an axis, 0 to size(axis) - 1. @throws as `group`.
  int coordinate(std::string_view axis) const;
  /// Number of ranks along an axis. @throws as `group`.
  int size(std::string_view axis) const;

  /// Forms the group of the ranks that differ from this one along the given axes alone, in
  /// row-major order of these axes: those that hold the parts of one replica, say. Blocks; every
  /// rank of the mesh must call it. @throws as `group`, InvalidArgument for an axis given twice,
  /// and comm::Mismatch where ranks give different ones: on every rank.
  CommunicatorPtr make_group(std::span<const std::string_view> axes) const;
  /// The same for a list.
  CommunicatorPtr make_group(std::initializer_list<std::string_view> axes) const {
    return make_group(std::span<const std::string_view>(axes.begin(), axes.size()));
  }

  /// The axes, in the order of the layout.
  const std::vector<MeshAxis>& axes() const noexcept { return axes_; }
  /// All ranks.
  const CommunicatorPtr& world() const noexcept { return world_; }

 private:
  std::size_t index_of(std::string_view axis) const;

  CommunicatorPtr world_;
  std::vector<MeshAxis> axes_;
  std::vector<int> coordinates_;
  std::vector<CommunicatorPtr> groups_;  // along each axis
};

}  // namespace lockstep::parallel
