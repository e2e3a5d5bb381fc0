import org.apache.iceberg.exceptions.CleanableFailure;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.rest.ErrorHandlers;
import org.apache.iceberg.rest.responses.ErrorResponse;

/** What Iceberg's REST client raises for each status that answers a commit of a table, and what follows from it. */
public class CommitAnswers {
  public static void main(String[] statuses) {
    for (String status : statuses) {
      int code = Integer.parseInt(status);
      ErrorResponse answer =
          ErrorResponse.builder().responseCode(code).withType("SomeException").withMessage("no").build();
      System.out.println(status + " " + concluded(answer));
    }
  }

  private static String concluded(ErrorResponse answer) {
    try {
      ErrorHandlers.tableCommitHandler().accept(answer);
    } catch (CommitStateUnknownException error) {
      return "UNKNOWN";
    } catch (RuntimeException error) {
      // SnapshotProducer.commit deletes what it wrote after a CleanableFailure, and after no other where cleanup is strict,
      // as it is in a REST catalog (TableOperations.requireStrictCleanup).
      return error instanceof CleanableFailure ? "NOT_APPLIED" : "FAILED";
    }
    return "APPLIED";
  }
}
