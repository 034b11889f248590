// What a user's first program needs of an installed lockstep: headers, the library, its version.
#include <iostream>

#include "lockstep/core/random.hpp"
#include "lockstep/core/shape.hpp"
#include "lockstep/version.hpp"

int main() {
  const lockstep::Shape shape{2, 3};
  std::cout << "lockstep " << lockstep::version << ", " << shape << " has "
            << lockstep::numel(shape) << " elements\n";
  return lockstep::numel(shape) == 6 ? 0 : 1;
}
