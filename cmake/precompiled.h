// What nearly every source of the library includes, precompiled (cmake/together.cmake). Sources include what they use all
// the same: without precompiled headers they must compile, too.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tandem/core/op.h"
#include "tandem/ops/pointwise.h"
