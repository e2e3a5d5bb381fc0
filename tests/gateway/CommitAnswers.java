import java.util.function.Consumer;
import org.apache.iceberg.exceptions.CleanableFailure;
import org.apache.iceberg.exceptions.CommitStateUnknownException;
import org.apache.iceberg.rest.ErrorHandlers;
import org.apache.iceberg.rest.responses.ErrorResponse;

/** What Iceberg's REST client raises for each status that answers a commit of a table, and what follows from it. */
public class CommitAnswers {
  public static void main(String[] statuses) throws Exception {
    for (String status : statuses) {
      ErrorResponse answer =
          ErrorResponse.builder()
              .responseCode(Integer.parseInt(status))
              .withType("SomeException")
              .withMessage("no")
              .build();
      String ofCreated = concluded(handlerOfCreated(), answer);
      String concluded = concluded(ErrorHandlers.tableCommitHandler(), answer);
      System.out.println(status + " " + (ofCreated.equals("NOT_APPLIED") ? ofCreated : concluded));
    }
  }

  /** The handler of the first commit of a created table (RESTTableOperations), which releases name differently. */
  @SuppressWarnings("unchecked")
  private static Consumer<ErrorResponse> handlerOfCreated() throws Exception {
    try {
      return (Consumer<ErrorResponse>) ErrorHandlers.class.getMethod("createTableErrorHandler").invoke(null);
    } catch (NoSuchMethodException error) {
      return ErrorHandlers.tableErrorHandler();
    }
  }

  private static String concluded(Consumer<ErrorResponse> handler, ErrorResponse answer) {
    try {
      handler.accept(answer);
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
