"""Python runs this at every start: it imports PySpark from where it is installed.

Spark puts an archive of the same modules before it, which every process would compile anew.
"""

import sys

sys.path[:] = [path for path in sys.path if not path.endswith(("/pyspark.zip", "-src.zip"))]
